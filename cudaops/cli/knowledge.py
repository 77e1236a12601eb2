"""`cudaops knowledge`: the corpus that the research agent searches."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudaops.errors import InputError
from cudaops.reports.quantities import one_line
from cudaops.settings import Settings, load_settings

if TYPE_CHECKING:
    from cudaops.rag.knowledge import Knowledge

app = typer.Typer(
    help="Search and extend the notes that the research agent reads.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


@app.command()
def add(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="A document, source file, folder or archive of them, or pypi:NAME for a package.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Project it belongs to: flashinfer, cutlass, ... (default: from the names)."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Paths in it to take: 'include/**'. May be repeated."),
    ] = None,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="Add the packages that are worth reading.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a file, folder, archive or package; replaces what was added from it before."""
    from cudaops.rag.packages import PREFIX, RECOMMENDED, is_package

    if recommended == (what is not None):
        raise InputError("give a PATH, pypi:NAME or --recommended")
    if what is not None and not is_package(what) and not Path(what).exists():
        raise InputError(f"{what}: no such file or folder")
    wanted = [(what, tuple(only or ()))] if what is not None else []
    if recommended:
        wanted = [(PREFIX + each.name, each.only) for each in RECOMMENDED]
    added = []
    with knowledge_base(load_settings()) as knowledge:
        for each, globs in wanted:
            if recommended:
                typer.echo(f"adding {each}", err=True)
            done = knowledge.add(each, source, only=globs, progress=_say_progress)
            added.append(done.model_dump(mode="json"))
            if as_json:
                continue
            licence = f", {one_line(done.licence, 60)}" if done.licence else ""
            typer.echo(
                f"{done.origin}: {done.written} written, {done.unchanged} unchanged,"
                f" {done.removed} removed{licence}"
            )
            for line in done.skipped:
                typer.echo(f"skipped {one_line(line)}", err=True)
    if as_json:
        typer.echo(json.dumps(added if recommended else added[0], indent=2))


def _say_progress(written: int, wanted: int) -> None:
    """One line that is written over, on a terminal only."""
    if sys.stderr.isatty():
        end = "\n" if written >= wanted else ""
        sys.stderr.write(f"\r{written:,} of {wanted:,} passages{end}")
        sys.stderr.flush()


@app.command(name="list")
def list_sources(
    kind: Annotated[
        str | None, typer.Option(help="Only of this kind: notes, documents, flashinfer, ...")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what was added, with the weight of its passages and its licence."""
    with knowledge_base(load_settings()) as knowledge:
        sources = [each for each in knowledge.sources() if kind in (None, each.kind)]
    if as_json:
        typer.echo(json.dumps([each._asdict() for each in sources], indent=2))
        return
    for each in sources:
        licence = f"  {one_line(each.licence, 60)}" if each.licence else ""
        typer.echo(
            f"{each.kind:10s} {each.weight:4.2f} {each.notes:6d} notes {each.passages:7d} passages"
            f"  {one_line(each.origin)}{licence}"
        )


@app.command()
def remove(
    what: Annotated[str, typer.Argument(metavar="PATH", help="As `list` names it.")],
) -> None:
    """Remove what was added from PATH; PATH need not exist."""
    from cudaops.rag.packages import is_package, origin_of

    origin = origin_of(what) if is_package(what) else str(Path(what).expanduser().resolve())
    with knowledge_base(load_settings()) as knowledge:
        removed = knowledge.remove(origin)
    typer.echo(f"{origin}: {removed} notes removed")


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in words.")],
    limit: Annotated[int, typer.Option(min=1, max=50, help="Passages to show.")] = 5,
    subtype: Annotated[
        str | None, typer.Option(help="Verdict subtype whose page comes first.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only passages of this kind: notes, flashinfer, ...")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the passages that answer QUERY, best first."""
    from cudaops.rag.knowledge import NOTHING_FOUND

    with knowledge_base(load_settings()) as knowledge:
        found = knowledge.search(query, limit=limit, subtype=subtype, kind=kind)
        _say_notices(knowledge.notices)
        searched_with = knowledge.searched_with
    if not found:
        typer.echo(NOTHING_FOUND, err=as_json)
    if as_json:
        typer.echo(json.dumps([citation.model_dump() for citation in found], indent=2))
        found = ()
    for citation in found:
        typer.echo(
            f"{citation.title}: {citation.heading}  [{citation.note}, score {citation.score:.3f}]"
        )
        typer.echo(f"  {one_line(citation.text, 300)}")
        typer.echo(f"  source: {one_line(citation.source)}\n")
    typer.echo(f"searched with {searched_with}", err=as_json)


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show size and location of the knowledge base."""
    with knowledge_base(load_settings()) as knowledge:
        state = knowledge.status()
    if as_json:
        typer.echo(state.model_dump_json(indent=2))
        return
    _say_notices(state.notices)
    typer.echo(f"database   {state.database}")
    typer.echo(f"model      {state.embedding_model}")
    typer.echo(f"reranking  {state.reranking_model or 'none'}")
    typer.echo(f"notes      {state.notes} in {state.chunks} passages, {state.embedded} embedded")
    for origin, notes in state.origins.items():
        typer.echo(f"           {notes:5d}  {origin}")


@contextmanager
def knowledge_base(settings: Settings) -> Iterator[Knowledge]:
    """The knowledge base that these settings name, closed afterwards."""
    from cudaops.graph.toolbox import open_knowledge

    knowledge = open_knowledge(settings)
    try:
        yield knowledge
    finally:
        knowledge.close()


def _say_notices(notices: tuple[str, ...]) -> None:
    for notice in notices:
        typer.echo(f"cudaops: {one_line(notice)}", err=True)
