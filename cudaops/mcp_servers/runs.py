"""Finished runs that a host may read: as resources, and by a tool for hosts that read none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from fastmcp import FastMCP
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.errors import InputError
from cudaops.mcp_servers.calls import reads
from cudaops.mcp_servers.sessions import Session, SessionProvider

RunPart = Literal["record", "report", "best", "patch", "certificate", "events"]

FILES: dict[RunPart, str] = {
    "record": "run.json",
    "report": "report.md",
    "best": "best.cu",
    "patch": "best.patch",
    "certificate": "certificate.json",
    "events": "events.jsonl",
}
MEDIA_TYPES: dict[RunPart, str] = {
    "record": "application/json",
    "report": "text/markdown",
    "best": "text/x-cuda",
    "patch": "text/x-diff",
    "certificate": "application/json",
    "events": "application/x-ndjson",
}
MAX_CHARS = 2_000_000
"""Longest text that is handed out; a record of many candidates is a tenth of it."""
PAGE_CHARS = 30_000
"""What one answer of the tool holds: hosts cut what is long. Claude Code 2.1.197 showed its model
49,928 characters whole, and of 76,100 the first 2,000 (2026-11-22)."""
MOST_LISTED = 50

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,199}")


class RunText(Record):
    """One file of a finished run, or a piece of it."""

    run_id: str
    part: RunPart
    next_offset: int | None = None
    """Where the rest begins; null: there is none."""
    text: str


def add_runs(server: FastMCP, sessions: SessionProvider) -> None:
    """Register the resources and the tool."""

    @server.tool(annotations=reads("Read a finished run"))
    def read_run(
        run_id: Annotated[str, Field(min_length=1, description="`run_id` of a finished run.")],
        part: Annotated[RunPart, Field(description="Which of its files.")] = "report",
        offset: Annotated[
            int, Field(ge=0, description="`next_offset` of the answer before, for a long file.")
        ] = 0,
    ) -> RunText:
        """Read a finished run: its record, report, best program, patch, certificate or events."""
        text = _text(sessions.current(), run_id, part)
        end = offset + PAGE_CHARS
        return RunText(
            run_id=run_id,
            part=part,
            next_offset=end if end < len(text) else None,
            text=text[offset:end],
        )

    @server.resource("cudaops://runs", mime_type="application/json", title="Finished runs")
    def runs() -> dict[str, str]:
        """Run ids of finished runs, newest first, with their outcome in the record."""
        return {run_id: f"run://{run_id}/record" for run_id, _ in _listed(sessions.current().runs)}

    for each in FILES:
        _offer(server, sessions, each)


def _offer(server: FastMCP, sessions: SessionProvider, part: RunPart) -> None:
    @server.resource(
        f"run://{{run_id}}/{part}",
        name=f"run {part}",
        title=f"Of a finished run: {FILES[part]}",
        description=f"`{FILES[part]}` of a finished run.",
        mime_type=MEDIA_TYPES[part],
    )
    def file(run_id: str) -> str:
        return _text(sessions.current(), run_id, part)


def _text(session: Session, run_id: str, part: RunPart) -> str:
    """Raises InputError, one line that says what there is. Who may name no path of this machine
    is told none either."""
    folder = _folder(session.runs, run_id)
    path = folder / FILES[part]
    if not path.is_file():
        there = ", ".join(name for name, file in FILES.items() if (folder / file).is_file())
        raise InputError(f"run {run_id} has no {FILES[part]}; it has: {there}")
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_CHARS)
    hidden = None if session.paths else session.folder
    return text if hidden is None else text.replace(str(hidden), ".")


def _folder(runs: Path | None, run_id: str) -> Path:
    # An id holds no slash, so that no other folder of this machine can be named.
    if runs is not None and _ID.fullmatch(run_id) and ".." not in run_id:
        for found, folder in _finished(runs):
            if found == run_id:
                return folder
    known = ", ".join(found for found, _ in _listed(runs)[:5]) or "none yet"
    raise InputError(
        f"no finished run {run_id[:80]!r}; there are: {known}. optimize_kernel and accept_rewrite "
        "answer with the `run_id` of theirs"
    )


def _listed(runs: Path | None) -> list[tuple[str, Path]]:
    if runs is None:
        return []
    return sorted(_finished(runs), key=lambda run: run[1].name, reverse=True)[:MOST_LISTED]


def _finished(runs: Path) -> Iterator[tuple[str, Path]]:
    """Run id and folder. The id is read from the record's first line that has it: a record is
    long, and there may be many."""
    for path in runs.glob("*/*/run.json"):
        if not path.is_symlink():
            with path.open(encoding="utf-8", errors="replace") as file:
                found = re.search(r'"run_id":\s*"([^"]+)"', file.read(400))
            if found:
                yield found[1], path.parent
