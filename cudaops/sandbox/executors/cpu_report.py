"""The report that `cpu/src/report.cpp` writes: tab-separated lines, one fact each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, cast, get_args

from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import Misbehaved, MisbehaviourKind
from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.cpu_symbols import locate
from cudaops.sandbox.process import Finished

MAX_WARNINGS = 16
_TOKEN = re.compile(r"@([PNA])(-?\d+)@")


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
            return names[number] if number < len(names) else f"#{number + 1}"

        return _TOKEN.sub(spelled, text)


class Report(NamedTuple):
    """Lines of a report, split at tabs."""

    lines: tuple[tuple[str, ...], ...]

    def all(self, verb: str) -> list[tuple[str, ...]]:
        """Lines of this verb without it."""
        return [line[1:] for line in self.lines if line[0] == verb]


def read_report(path: Path) -> Report:
    """An absent report is an empty one: the child died before it began."""
    if not path.is_file():
        return Report(())
    text = path.read_text("utf-8", "replace")
    return Report(tuple(tuple(line.split("\t")) for line in text.splitlines() if line))


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
            raise SandboxUnavailable(f"the cpu executor could not go on: {message}", remedy)
        place = locate(executable, [int(pc, 16)], names.author_files).get(int(pc, 16))
        text = f"{kernel}: " * bool(kernel) + names.spell(message, kernel)
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
    return None


def find_warnings(report: Report, executable: Path, names: Names) -> tuple[Misbehaved, ...]:
    """Findings of the checker that did not end the run, each place pair once."""
    raw = [tuple(w[:5]) for w in report.all("warn") if len(w) >= 5]
    places = locate(executable, [int(p, 16) for w in raw for p in w[1:3]], names.author_files)
    found: dict[tuple[str, str, str], Misbehaved] = {}
    for kind, pc, other, kernel, message in raw:
        here, there = places.get(int(pc, 16)), places.get(int(other, 16))
        if kind == "divergent_barrier" and "@OTHER@" in message and here == there:
            continue  # copies of one barrier that the compiler made
        text = names.spell(message, kernel).replace("@OTHER@", str(there or "an unknown line"))
        key = (kind, str(here), str(there))
        if key not in found and len(found) < MAX_WARNINGS:
            found[key] = _misbehaved(kind, f"{kernel}: {text}", here, "")
    return tuple(found.values())


def _misbehaved(kind: str, message: str, place: SourceLocation | None, log: str) -> Misbehaved:
    what = cast(MisbehaviourKind, kind if kind in get_args(MisbehaviourKind) else "crash")
    return Misbehaved(what=what, message=" ".join(message.split()), location=place, log=log)
