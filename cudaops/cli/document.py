"""Writes docs/cli.md from the declarations: `python -m cudaops.cli.document`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from cudaops.cli import COMMANDS, app
from cudaops.cli.options import RUN_ARGUMENT_HELP
from cudaops.settings import Settings

RUN_HELP = f"{RUN_ARGUMENT_HELP}  [default: latest]"
"""Of the argument RUN, which the page explains once."""
PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
MARK = "<!-- What follows is written by `python -m cudaops.cli.document`. -->\n"
"""Above it stands what people write."""

READ_ON = {
    "run --allow-ptx": "launch-plans.md#inline-ptx",
    "run --args": "runs.md",
    "run --beam-width": "search.md",
    "run --build": "builds.md",
    "apply --check": "builds.md#check-what-was-applied",
    "report --html": "reports.md",
    "run --model": "language-models.md",
    "run --run": "driver.md",
    "run --source": "problems.md",
    "run --strategy": "search.md",
    "run --use-memory": "memory.md",
    "CUDAOPS_DCGM_URL": "service.md",
    "CUDAOPS_GPU_PRICE": "costs.md",
    "CUDAOPS_ISOLATION": "isolation.md",
    "CUDAOPS_MODEL_PRICE": "costs.md",
    "CUDAOPS_SERVER": "remote.md",
    "batch": "batch.md",
    "certify check": "certificate.md",
    "confirm": "certificate.md#judging-again",
    "doctor": "doctor.md",
    "export rewards": "rewards.md",
    "knowledge add": "knowledge.md",
    "mcp serve": "mcp.md",
    "memory list": "memory.md",
    "preload": "preload.md",
    "profile": "profiling.md",
    "replay": "reports.md",
    "serve": "service.md",
    "verify": "verify.md",
    "worker": "service.md",
}
"""The page in docs/ that says more of a command, an option or a setting."""


def page() -> str:
    """The whole page: what people wrote, then commands, options and settings as declared."""
    written = PAGE.read_text("utf-8").partition(MARK)[0]
    return "\n\n".join([written + MARK + "\n## Commands", *_commands(), *_settings()]) + "\n"


def leaves() -> dict[str, Any]:
    """Every command with its words: `run`, `memory list`."""
    found: dict[str, Any] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= (
            {f"{name} {sub}": leaf for sub, leaf in inner.items()} if inner else {name: command}
        )
    return found


def _commands() -> Iterator[str]:
    commands = leaves()
    yield _table(
        ("command", "does"),
        [
            (f"[`cudaops {name}`](#cudaops-{name.replace(' ', '-')})", _summary(name, command))
            for name, command in commands.items()
        ],
    )
    of_run = dict(_records(commands["run"]))
    for name, command in commands.items():
        yield f"## cudaops {name}"
        yield f"`{' '.join(['cudaops', name, *_arguments(command)])}`"
        records = dict(_records(command))
        shared = [left for left in records if name != "run" and of_run.get(left) == records[left]]
        rows = [
            (f"`{left}`", _with_link(f"{name} {left.split()[0]}", text))
            for left, text in records.items()
            if left not in shared
        ]
        if rows:
            yield _table(("option", "meaning"), rows)
        if shared:
            names = ", ".join(f"`{left.split(' <')[0]}`" for left in shared)
            yield f"As for [`cudaops run`](#cudaops-run): {names}."


def _summary(name: str, command: Any) -> str:
    known = COMMANDS.get(name)
    return _with_link(name, known.summary if known else _line(command.help.split("\n\n")[0]))


def _arguments(command: Any) -> list[str]:
    return [p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument"]


def _records(command: Any) -> Iterator[tuple[str, str]]:
    """Arguments and options as `--help` shows them, without the names of Python's types."""
    context = command.make_context("", [], resilient_parsing=True)
    for param in command.params:
        record = param.get_help_record(context)
        if record is not None and record[1] != RUN_HELP:
            left = re.sub(r" <(str|path|(int|float)( range)?|list\[\w+\])>$", "", record[0])
            yield left, _line(record[1])


def _settings() -> Iterator[str]:
    yield "## Settings"
    yield (
        "Read from the environment, or from `.env` in the working folder: copy "
        "[.env.example](../.env.example). An empty variable counts as not set."
    )
    rows = []
    for field in Settings.model_fields.values():
        name = str(field.validation_alias)
        rows.append((f"`{name}`", _with_link(name, _line(field.description or ""))))
    yield _table(("variable", "meaning"), rows)


def _with_link(name: str, text: str) -> str:
    target = READ_ON.get(name)
    if target is None:
        return text
    page = target.partition(".md")[0]
    return f"{text} ([{page}]({target}))"


def _line(text: str) -> str:
    return " ".join(text.split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
