"""`cudaops memory`: what earlier runs learnt, to read, edit and forget."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cudaops.domain.memory import KernelKey
from cudaops.errors import InputError, PrerequisiteError
from cudaops.memory.document import Document, read_document
from cudaops.memory.store import Memory, Remembered
from cudaops.memory.texts import pattern_line
from cudaops.reports.quantities import one_line
from cudaops.settings import load_settings

app = typer.Typer(help="What earlier runs learnt about kernels.", no_args_is_help=True)

KernelArgument = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL", help="Its name, the beginning of its structure, or its memory file."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]

_EMPTY = "nothing is remembered yet"


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """Show which kernels something is known of."""
    known = _memory().kernels()
    if as_json:
        typer.echo(json.dumps([_summary(r) for r in known], indent=2))
        return
    for remembered in known:
        row = _summary(remembered)
        best = "nothing paid" if row["best_speedup"] is None else f"best {row['best_speedup']:.2f}x"
        notes = ", notes" if row["notes"] else ""
        typer.echo(
            f"{one_line(row['name'], 40):24}  {one_line(row['device_class'], 20):8}  "
            f"{row['structure'][:16]}  {row['paid']} of {row['tried']} paid, {best} "
            f"{row['best_source'] or ''}".rstrip()
            + notes
        )
    if not known:
        typer.echo(_EMPTY)


@app.command()
def show(kernel: KernelArgument, as_json: JsonOption = False) -> None:
    """Print what is known of KERNEL, on every class of device."""
    found = _found(_memory(), kernel)
    if as_json:
        typer.echo(json.dumps([r.memory.model_dump(mode="json") for r in found], indent=2))
        return
    for remembered in found:
        for line in remembered.document.lines:
            typer.echo("".join(c if c.isprintable() else " " for c in line.text))


@app.command()
def edit(kernel: KernelArgument) -> None:
    """Open the file of KERNEL in $VISUAL or $EDITOR; what runs add meanwhile is kept."""
    import click

    memory = _memory()
    remembered = _one(memory, kernel)
    before = remembered.document.data
    try:
        after = click.edit(before, extension=".md", require_save=True)
    except click.ClickException as error:
        raise PrerequisiteError(
            one_line(error.format_message()), "set EDITOR to an editor's command"
        ) from error
    if after is None or after == before:
        typer.echo("nothing changed")
        return
    memory.replace(remembered.path, before, after)
    _say_what_was_read(remembered.document, read_document(after))


@app.command()
def note(
    kernel: KernelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember, in your words.")],
) -> None:
    """Add a note to KERNEL: models are shown it in every later run."""
    memory = _memory()
    remembered = _one(memory, kernel)
    memory.note(remembered.key, text)
    typer.echo(f"noted in {remembered.path}")


@app.command()
def forget(
    kernel: Annotated[
        str | None, typer.Argument(metavar="KERNEL", help="As for the other commands.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every kernel.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Forget this rewrite alone: the id behind `source`.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget KERNEL, one rewrite of it, or everything; notes in the files go as well."""
    if (kernel is None) is not every or (every and source):
        raise InputError("name a KERNEL, with --source for one rewrite of it, or say --all")
    memory = _memory()
    key = None if kernel is None else _one(memory, kernel).key
    if key is not None and source is not None:
        removed = memory.forget_entry(key, source)
        if not removed:
            raise InputError(f"{key.name} has no result of a rewrite {one_line(source)}")
        typer.echo(f"forgot {_counted(removed, 'line')} of {one_line(key.name)}")
        return
    what = (
        f"all of {memory.folder}" if key is None else f"{one_line(key.name)} on {key.device_class}"
    )
    if not memory.kernels():
        typer.echo(_EMPTY)
        return
    if not yes:
        typer.confirm(f"forget {what}, notes included?", abort=True)
    typer.echo(f"forgot {_counted(memory.forget(key), 'kernel')}")


@app.command()
def patterns(
    subtype: Annotated[str | None, typer.Option(help="Verdict subtype.")] = None,
    device_class: Annotated[str | None, typer.Option(help="As nvcc names it: sm_86.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what paid over all kernels, by verdict and family, most promising first."""
    found = _memory().patterns(subtype, device_class)
    if as_json:
        typer.echo(json.dumps([pattern.model_dump() for pattern in found], indent=2))
        return
    for pattern in found:
        typer.echo(pattern_line(pattern))
    if not found:
        typer.echo(_EMPTY)


@app.command()
def path() -> None:
    """Print the folder that memory is kept in."""
    typer.echo(_memory().folder)


def _memory() -> Memory:
    folder = load_settings().memory_folder
    if folder is None:
        raise InputError("memory is switched off: CUDAOPS_MEMORY is off")
    return Memory(folder.absolute())


def _found(memory: Memory, kernel: str) -> Sequence[Remembered]:
    """Kernels that a user's word stands for. Raises InputError where there is none."""
    known = memory.kernels()
    as_file = Path(kernel).absolute()
    for matches in (
        [r for r in known if r.path.absolute() == as_file or kernel in (r.path.name, r.path.stem)],
        [r for r in known if r.key.name == kernel],
        [r for r in known if len(kernel) >= 4 and r.key.structure.startswith(kernel)],
    ):
        if matches:
            return matches
    names = ", ".join(sorted({one_line(r.key.name, 40) for r in known})) or "nothing yet"
    raise InputError(f"no kernel {one_line(kernel, 80)} is remembered; known: {names}")


def _one(memory: Memory, kernel: str) -> Remembered:
    found = _found(memory, kernel)
    if len(found) > 1:
        names = ", ".join(r.path.stem for r in found)
        raise InputError(f"{one_line(kernel, 80)} is several; name one: {names}")
    return found[0]


def _summary(remembered: Remembered) -> dict[str, Any]:
    key, memory = remembered.key, remembered.memory
    paid = [e for e in memory.entries if e.outcome != "rejected" and e.speedup is not None]
    best = max(paid, key=lambda e: e.speedup or 0.0, default=None)
    return {
        "name": key.name,
        "device_class": key.device_class,
        "structure": key.structure,
        "file": str(remembered.path),
        "tried": len(memory.entries) + sum(len(a.source_ids) for a in memory.avoided),
        "paid": sum(e.outcome != "rejected" for e in memory.entries),
        "best_speedup": best.speedup if best else None,
        "best_source": best.time_source if best else None,
        "notes": bool(memory.notes),
    }


def _say_what_was_read(before: Document, after: Document) -> None:
    results = len(after.entries) + len(after.avoided)
    typer.echo(f"saved: {_counted(results, 'line')} of results")
    for number, text in after.suspicious:
        typer.echo(f"line {number} is no result as it stands and counts as a note: {_short(text)}")
    if after.key is None:
        typer.echo("the key in the file's head cannot be read: the file's name stands in for it")
    elif _key(after.key) != _key(before.key):
        typer.echo("the key in the file's head changed: it is about another kernel now")


def _key(key: KernelKey | None) -> tuple[str, str] | None:
    return (key.structure, key.device_class) if key else None


def _short(text: str) -> str:
    return one_line(re.sub(r"\s+", " ", text), 80)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
