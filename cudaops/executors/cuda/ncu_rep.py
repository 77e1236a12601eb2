"""NVIDIA's `.ncu-rep` read without a GPU, through NVIDIA's own `ncu-report` wheel."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cudaops.cuda.hot_spots import SassInstruction, hot_instructions, hot_lines
from cudaops.cuda.ncu_pages import NcuLaunch
from cudaops.domain.base import SourceLocation
from cudaops.domain.profile import Profile
from cudaops.errors import InputError, PrerequisiteError
from cudaops.executors.process import python_path, run_bounded

READER = "cudaops.executors.cuda.ncu_reader"
READ_TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 64 * 1024**2
"""A report of one launch is some 300 KB of JSON, source files included some MB."""


class ReportLaunch(NamedTuple):
    """One launch of a report."""

    launch: NcuLaunch
    symbol: str
    """Mangled name of the kernel."""
    instructions: tuple[SassInstruction, ...]
    """With what was counted and sampled at each; empty where the report has no source counters."""
    sources: Mapping[str, str]
    """Source files that were imported into the report, by their path."""


def read_report(path: Path) -> tuple[ReportLaunch, ...]:
    """Every launch of a report, with all its metrics, NVIDIA's rules and its source counters.

    Raises PrerequisiteError where the wheel is not installed, InputError where the file is no
    report or holds no profiled launch.
    """
    answer = _asked(path)
    if "input" in answer:
        raise InputError(answer["input"])
    if "missing" in answer:
        raise PrerequisiteError(answer["missing"], answer["remedy"])
    return tuple(_launch(one) for one in answer["launches"])


def _asked(path: Path) -> dict[str, Any]:
    """What the reader's process says."""
    command = [sys.executable, "-P", "-m", READER, str(path.absolute())]
    done = run_bounded(
        command,
        cwd=Path(tempfile.gettempdir()),
        timeout_s=READ_TIMEOUT_S,
        env={"PYTHONPATH": python_path()},
        max_output_bytes=MAX_ANSWER_BYTES,
        tool="ncu",
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(
            f"NVIDIA's reader ended with {done.exit_code} on {path.name} ({said[:160]}): copy it "
            f"again, or export it on a machine with ncu: ncu --import {path.name} --page raw --csv"
        ) from None
    return answer


def _launch(said: dict[str, Any]) -> ReportLaunch:
    profile = Profile.model_validate(said["profile"])
    return ReportLaunch(
        launch=NcuLaunch(said["id"], profile, tuple(said["unknown_labels"])),
        symbol=said["symbol"],
        instructions=tuple(
            SassInstruction(**{**one, "line": tuple(one["line"]) if one["line"] else None})
            for one in said["instructions"]
        ),
        sources=said["sources"],
    )


def profile_of(read: ReportLaunch) -> Profile:
    """The launch's profile with its hot lines: of the source where the report tells lines, else of
    the machine code."""
    profile = read.launch.profile
    if not read.instructions:
        return profile
    if any(each.line for each in read.instructions):
        texts = {PurePosixPath(path).name: text for path, text in read.sources.items()}
        hot = hot_lines(read.instructions, {}, lambda place: line_of(texts, place))
        return profile.model_copy(update={"hot_lines": hot})
    note = (
        "the report tells no source lines, so instructions are shown: compile with -lineinfo, and "
        "profile with --import-source yes"
    )
    return profile.model_copy(
        update={
            "hot_lines": hot_instructions(profile.kernel, read.instructions),
            "notes": (*profile.notes, note),
        }
    )


def line_of(texts: Mapping[str, str], place: SourceLocation) -> str:
    """A line of one of these files; empty where the file or the line is not there."""
    lines = texts.get(place.file, "").splitlines()
    return lines[place.line - 1] if place.line <= len(lines) else ""
