"""The report that `cpu/src/report.cpp` writes: tab-separated lines, one fact each.

The code under test runs in the process that writes it and may have written any of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast, get_args

from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import Misbehaved, MisbehaviourKind
from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.cpu_symbols import locate
from cudaops.sandbox.left_files import NotLeft, opened
from cudaops.sandbox.process import Finished

MAX_WARNINGS = 16
MOST_LOOKED_AT = 4096
"""Warnings whose places are looked up; the checker reports a pair of places once."""
MOST_BYTES = 128 << 20
MOST_LINES = 2_000_000
"""Of a report. The recorders write a `usage` line of some 40 bytes for every distinct set of
arguments: a program that counts its launches in an argument fills this with two million launches.
They are read one by one (2 s in all) and most are not kept."""
MOST_KEPT_BYTES = 16 << 20
MOST_KEPT_LINES = 64_000
"""What is kept in memory, up to 100 MB. A recorded launch takes `1 + arguments + 2 * (allocations +
variables)` lines, some 30, and 8 launches a kernel are recorded."""
MOST_LINE_BYTES = 128 << 10
"""A kernel's parameters take up to 32764 bytes, in hexadecimal. Source: CUDA C++ Programming Guide,
function parameters."""
MOST_MESSAGE = 4096
"""Characters; as long as a line of the runtime's own."""
_MOST_FIELDS = 16
_VERBS = frozenset(
    b"after arg before began config count end fault field full gafter gbefore graph host limit ok"
    b" overdue refused stopped usage warn".split()
)
_REPEATED = (b"full", b"refused")
"""Written at every launch, in the same words."""
_UNUSED = re.compile(rb"usage\t[^\t\n]*\t[^\t\n]*\t[^\t\n]*\t0[\t\n]")
"""Of a configuration whose contents were not kept: nobody asks for it."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_TOKEN = re.compile(r"@([PNA])(-?[0-9]{1,9})@")
_ADDRESS = re.compile(r"[0-9a-f]{1,16}")


class Names(NamedTuple):
    """What numbers in messages are called by the author."""

    author_files: tuple[str, ...]
    parameters: dict[str, tuple[str, ...]]
    """Kernel to its parameters' names, in order."""
    allocations: dict[int, str]
    """Allocation number to a name; scratch buffers are -2, -3, ..."""

    def spell(self, text: str, kernel: str) -> str:
        """Replace the runtime's tokens: a parameter's allocation, a parameter, an allocation."""

        def spelled(found: re.Match[str]) -> str:
            number = int(found[2])
            if found[1] == "A":
                return self.allocations.get(number, f"#{number}")
            names = self.parameters.get(kernel, ())
            return names[number] if 0 <= number < len(names) else f"#{number + 1}"

        return _TOKEN.sub(spelled, text)


class Report(NamedTuple):
    """Lines of a report, split at tabs."""

    lines: tuple[tuple[str, ...], ...]
    problem: Misbehaved | None = None
    """Why it cannot be what the runtime wrote, or why not all of it was read."""

    def all(self, verb: str) -> list[tuple[str, ...]]:
        """Lines of this verb without it."""
        return [line[1:] for line in self.lines if line[0] == verb]


def bad_report(why: str) -> Misbehaved:
    """The program did something to its report; `why` is clipped to a line."""
    text = " ".join(_CONTROL.sub("\ufffd", why).split())[:300]
    return Misbehaved(
        what="crash", message=f"the report of the run is not as the runtime writes it: {text}"
    )


def read_report(path: Path) -> Report:
    """An absent report is an empty one: the child died before it began."""
    try:
        with opened(path.parent, path.name) as file:
            return report_of(file)
    except NotLeft as wrong:
        return Report(()) if wrong.absent else Report((), bad_report(str(wrong)))


def report_of(file: BinaryIO) -> Report:
    """Read line by line, so that memory is bounded whatever stands in the file.

    An unterminated last line is what was being written when the child was killed. Sets of arguments
    that were not recorded are left out.
    """
    kept: list[bytes] = []
    seen: set[bytes] = set()
    lines = size = kept_size = 0
    problem = None
    while line := file.readline(MOST_LINE_BYTES + 1):
        lines, size = lines + 1, size + len(line)
        if size > MOST_BYTES or lines > MOST_LINES or len(line) > MOST_LINE_BYTES:
            problem = _flood()
            break
        if not line.endswith(b"\n"):
            break
        if _UNUSED.match(line):
            continue
        verb = line[:-1].partition(b"\t")[0]
        if verb not in _VERBS:
            problem = bad_report(f"line {lines} begins with {verb[:40].decode(errors='replace')!r}")
            break
        if line in seen:
            continue
        if verb in _REPEATED:
            seen.add(line)
        kept.append(line)
        kept_size += len(line)
        if kept_size > MOST_KEPT_BYTES or len(kept) > MOST_KEPT_LINES:
            problem = _flood()
            break
    return Report(tuple(_fields(line) for line in kept), problem)


def _fields(line: bytes) -> tuple[str, ...]:
    text = line[:-1].decode("utf-8", "replace")
    return tuple(_CONTROL.sub("\ufffd", text).split("\t", _MOST_FIELDS))


def _flood() -> Misbehaved:
    text = f"more than {MOST_BYTES >> 20} MiB, {MOST_LINES:,} lines or {MOST_KEPT_LINES:,} facts"
    return Misbehaved(what="output_flood", message=f"the report of the run is too long: {text}")


def find_fault(
    report: Report, done: Finished, executable: Path, names: Names, timeout_s: float
) -> Misbehaved | None:
    """What ended the child before its time, as a record; None where it came to its end.

    Raises SandboxUnavailable where the runtime itself could not go on.
    """
    log = done.stderr[-4096:]
    for kind, pc, kernel, message in (tuple(f[:4]) for f in report.all("fault") if len(f) >= 4):
        if kind == "infrastructure":
            remedy = "free memory, processes or disk space and run again"
            raise SandboxUnavailable(f"the cpu executor could not go on: {message[:300]}", remedy)
        at = _address(pc)
        place = locate(executable, [at], names.author_files).get(at)
        text = f"{kernel}: " * bool(kernel) + names.spell(message[:MOST_MESSAGE], kernel)
        if not kernel and kind == "crash" and (said := log.strip().splitlines()):
            text += f" ({said[-1].strip()[:200]})"
        return _misbehaved(kind, text, place, log)
    if done.timed_out:
        return _misbehaved(
            "timeout", f"did not end within {timeout_s:g} s and was stopped", None, log
        )
    if done.exceeded:
        what = "output_flood" if done.flooded else "crash"
        return _misbehaved(what, done.exceeded, None, log)
    if done.flooded:
        return _misbehaved(
            "output_flood", "wrote more output than is kept and was stopped", None, log
        )
    if done.exit_code < 0:
        return _misbehaved("crash", f"was ended by signal {-done.exit_code}", None, log)
    return report.problem


def find_warnings(report: Report, executable: Path, names: Names) -> tuple[Misbehaved, ...]:
    """Findings of the checker that did not end the run, each place pair once."""
    raw = [tuple(w[:5]) for w in report.all("warn")[:MOST_LOOKED_AT] if len(w) >= 5]
    places = locate(executable, [_address(p) for w in raw for p in w[1:3]], names.author_files)
    found: dict[tuple[str, str, str], Misbehaved] = {}
    for kind, pc, other, kernel, message in raw:
        here, there = places.get(_address(pc)), places.get(_address(other))
        if kind == "divergent_barrier" and "@OTHER@" in message and here == there:
            continue  # copies of one barrier that the compiler made
        text = names.spell(message[:MOST_MESSAGE], kernel)
        text = text.replace("@OTHER@", str(there or "an unknown line"))
        key = (kind, str(here), str(there))
        if key not in found and len(found) < MAX_WARNINGS:
            found[key] = _misbehaved(kind, f"{kernel}: {text}", here, "")
    return tuple(found.values())


def _address(text: str) -> int:
    """0 for what is none."""
    return int(text, 16) if _ADDRESS.fullmatch(text) else 0


def _misbehaved(kind: str, message: str, place: SourceLocation | None, log: str) -> Misbehaved:
    what = cast(MisbehaviourKind, kind if kind in get_args(MisbehaviourKind) else "crash")
    text = " ".join(message.split())[:MOST_MESSAGE]
    return Misbehaved(what=what, message=text, location=place, log=log)
