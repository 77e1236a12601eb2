"""`cudaops memory`: what earlier runs learnt, to read, add to and forget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cudaops.domain.memory import KernelKey
from cudaops.errors import InputError
from cudaops.memory.results import KernelMemory
from cudaops.memory.store import MemoryStore
from cudaops.memory.texts import document, pattern_line
from cudaops.reports.quantities import one_line
from cudaops.settings import load_settings

app = typer.Typer(
    help="Show, extend or delete what earlier runs recorded about kernels.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

KernelArgument = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL", help="Its name, the beginning of its structure, or NAME-STRUCTURE-CLASS."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]

_EMPTY = "no results are stored yet"


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List kernels with recorded results."""
    memory = _memory()
    rows = [_summary(known, str(memory.file)) for known in memory.kernels()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        best = "nothing paid" if row["best_speedup"] is None else f"best {row['best_speedup']:.2f}x"
        notes = ", notes" if row["notes"] else ""
        typer.echo(
            f"{one_line(row['name'], 40):24}  {one_line(row['device_class'], 20):8}  "
            f"{row['structure'][:16]}  {row['paid']} of {row['tried']} paid, {best} "
            f"{row['best_source'] or ''}".rstrip()
            + notes
        )
    if not rows:
        typer.echo(_EMPTY)


@app.command()
def show(kernel: KernelArgument, as_json: JsonOption = False) -> None:
    """Show the recorded candidates of KERNEL with their outcomes, on every device class."""
    found = _found(_memory(), kernel)
    if as_json:
        typer.echo(json.dumps([known.model_dump(mode="json") for known in found], indent=2))
    else:
        typer.echo("\n\n".join(map(document, found)))


@app.command()
def note(
    kernel: KernelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
) -> None:
    """Add a note to KERNEL that models read in later runs."""
    memory = _memory()
    memory.note(_one(memory, kernel), text)
    typer.echo(f"noted in {memory.file}")


@app.command()
def forget(
    kernel: Annotated[
        str | None, typer.Argument(metavar="KERNEL", help="As for the other commands.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every kernel.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Delete only this rewrite: the id after `source`.")
    ] = None,
    notes: Annotated[bool, typer.Option("--notes", help="Delete only its notes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the records of KERNEL with its notes, of one rewrite, or everything."""
    if (kernel is None) is not every or (every and (source or notes)) or (source and notes):
        raise InputError(
            "name a KERNEL, with --source for one rewrite or --notes for its notes, or say --all"
        )
    memory = _memory()
    key = None if kernel is None else _one(memory, kernel)
    if key is not None and source is not None:
        removed = memory.forget_results(key, source)
        if not removed:
            raise InputError(f"{key.name} has no result of a rewrite {one_line(source)}")
        typer.echo(f"forgot {_counted(removed, 'line')} of {one_line(key.name)}")
        return
    if key is not None and notes:
        typer.echo(f"forgot {_counted(memory.forget_notes(key), 'note')} of {one_line(key.name)}")
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
    """Show which strategies helped against which verdict, over all kernels, best first."""
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
    """Print the folder of the memory."""
    typer.echo(_memory().folder)


def _memory() -> MemoryStore:
    folder = load_settings().memory_folder
    if folder is None:
        raise InputError("memory is switched off: CUDAOPS_MEMORY is off")
    return MemoryStore(folder.absolute())


def _found(memory: MemoryStore, kernel: str) -> Sequence[KernelMemory]:
    """Kernels that a user's word stands for. Raises InputError where there is none."""
    known = memory.kernels()
    for matches in (
        [m for m in known if kernel in (m.key.name, _label(m.key))],
        [m for m in known if len(kernel) >= 4 and m.key.structure.startswith(kernel)],
    ):
        if matches:
            return matches
    names = ", ".join(sorted({one_line(m.key.name, 40) for m in known})) or "nothing yet"
    raise InputError(f"no kernel {one_line(kernel, 80)} has results; known: {names}")


def _one(memory: MemoryStore, kernel: str) -> KernelKey:
    found = _found(memory, kernel)
    if len(found) > 1:
        names = ", ".join(one_line(_label(m.key)) for m in found)
        raise InputError(f"{one_line(kernel, 80)} is several; name one: {names}")
    return found[0].key


def _label(key: KernelKey) -> str:
    return f"{key.name}-{key.structure}-{key.device_class}"


def _summary(memory: KernelMemory, file: str) -> dict[str, Any]:
    key = memory.key
    paid = [e for e in memory.entries if e.outcome != "rejected" and e.speedup is not None]
    best = max(paid, key=lambda e: e.speedup or 0.0, default=None)
    return {
        "name": key.name,
        "device_class": key.device_class,
        "structure": key.structure,
        "file": file,
        "tried": len(memory.entries) + sum(len(a.source_ids) for a in memory.avoided),
        "paid": sum(e.outcome != "rejected" for e in memory.entries),
        "best_speedup": best.speedup if best else None,
        "best_source": best.time_source if best else None,
        "notes": bool(memory.notes),
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
