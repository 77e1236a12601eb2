"""The command line: what `cudaops` and `python -m cudaops` run. One file a group of commands.

A command's file is imported when that command is asked for: `cudaops --help` imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup


class CommandEntry(NamedTuple):
    """Where a command is defined, and its line in `cudaops --help`."""

    module: str
    name: str
    """A function, or a Typer with commands of its own."""
    summary: str
    """The first line of the command's own help."""


COMMANDS = {
    "run": CommandEntry(
        "commands",
        "run",
        "Profile, diagnose, rewrite and verify the most expensive kernel of FILE.cu.",
    ),
    "resume": CommandEntry(
        "commands",
        "resume",
        "Continue a run that was killed or waits for a review; finished stages are kept.",
    ),
    "apply": CommandEntry(
        "commands", "apply", "Apply a run's rewrite to your own files, or revert it."
    ),
    "profile": CommandEntry(
        "commands",
        "profile",
        "Profile a kernel and say what limits it; --from reads an ncu report.",
    ),
    "report": CommandEntry(
        "commands",
        "report",
        "Print a run's evidence and write report.md again, or one HTML file.",
    ),
    "verify": CommandEntry(
        "commands",
        "verify",
        "Judge CAND.cu against BASE.cu: same function, same precision, faster.",
    ),
    "confirm": CommandEntry(
        "certify",
        "confirm",
        "Judge a certified rewrite again, on this machine and with new secret inputs.",
    ),
    "certify": CommandEntry(
        "certify", "app", "Check a certificate's signature and content, or show the signing key."
    ),
    "preload": CommandEntry(
        "preload",
        "preload",
        "Build an LD_PRELOAD library that launches a run's rewrite in the unchanged program.",
    ),
    "replay": CommandEntry(
        "runs",
        "replay",
        "Print a recorded run step by step. Needs no GPU, key, compiler or network.",
    ),
    "export": CommandEntry("export", "app", "Finished runs for other programs."),
    "batch": CommandEntry(
        "batch",
        "batch",
        "Optimise a folder of programs, or a list, through a service's queue; resumable.",
    ),
    "doctor": CommandEntry(
        "commands",
        "doctor",
        "Check this machine's compilers, GPU and profiler, with a remedy for each failure.",
    ),
    "knowledge": CommandEntry(
        "knowledge", "app", "Search and extend the notes that the research agent reads."
    ),
    "memory": CommandEntry(
        "memory", "app", "Show, extend or delete what earlier runs recorded about kernels."
    ),
    "mcp": CommandEntry("mcp", "app", "MCP servers for agent hosts; `serve` may be omitted."),
    "serve": CommandEntry(
        "service", "serve", "Serve the HTTP API and its web page, with a worker that runs the jobs."
    ),
    "worker": CommandEntry(
        "service",
        "worker",
        "Run jobs from the service's database until stopped.",
    ),
    "token": CommandEntry(
        "service", "token_app", "Create, list and revoke the service's access tokens."
    ),
}


class _Loaded(Mapping[str, Any]):
    """Commands by name; looking one up imports its file."""

    def __getitem__(self, name: str) -> Any:
        place = COMMANDS[name]
        found = getattr(import_module(f"{__name__}.{place.module}"), place.name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    """The root: its help is written from COMMANDS."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded()  # type: ignore[assignment]  # nothing is ever added

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of COMMANDS."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A line a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in COMMANDS.items()])


app = typer.Typer(
    cls=_Commands,
    name="cudaops",
    help="Optimizes CUDA kernels: finds what limits one, rewrites it and tests the rewrite.",
    epilog="Exit codes: 0 accepted or provisional, 1 no rewrite reached --min-speedup, "
    "2 invalid input, 3 a tool or device is missing or failed, 4 waits for a review (--review).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cudaops {version('cudaops')}")
        raise typer.Exit()


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
