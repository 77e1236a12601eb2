"""compute-sanitizer's findings in the words that the `cpu` executor's checker uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

from cudaops.cuda.sanitizer_report import Finding, Index, Other, Place, Report
from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import Misbehaved, MisbehaviourKind
from cudaops.program.candidate import FILE as CANDIDATE_FILE

MAX_FINDINGS = 16
UNNAMED = "an allocation of"
"""Stands in messages where only an allocation's size is known."""


class Extent(NamedTuple):
    """An allocation of the task."""

    name: str
    size_bytes: int


class Names(NamedTuple):
    """What the author calls the things that the tool numbers or mangles."""

    author_files: tuple[str, ...]
    kernels: Mapping[str, str]
    """Mangled symbol to what was launched."""
    extents: tuple[Extent, ...]


class Blamed(NamedTuple):
    """A finding in words."""

    misbehaved: Misbehaved
    block: Index | None
    """Where it was seen."""


def misbehaviours(report: Report, names: Names) -> tuple[Blamed, ...]:
    """Findings that speak against the launched code, each once, errors of access first.

    What this module has no words for is left out; `Report.clean` does not forget it.
    """
    found: dict[tuple[str, str, str], Blamed] = {}
    for finding in report.counted:
        for one in _spelled(finding, names):
            said = "" if one.what != "shared_race" else one.message
            found.setdefault((one.what, str(one.location), said), Blamed(one, finding.block))
    ranked = sorted(found.values(), key=lambda b: b.misbehaved.what != "out_of_bounds")
    return tuple(ranked[:MAX_FINDINGS])


def _spelled(finding: Finding, names: Names) -> list[Misbehaved]:
    if finding.kind == "race":
        return _race(finding, names)
    what, text = _what(finding, names)
    if what is None:
        return []
    return [_misbehaved(what, text, finding, _located(finding.places, names), names)]


def _what(finding: Finding, names: Names) -> tuple[MisbehaviourKind | None, str]:
    if finding.kind == "access":
        return _access(finding, names)
    if finding.kind == "uninitialised":
        if finding.space == "shared":
            return (
                "uninitialised_read",
                f"reads shared memory that no thread of {_block(finding.block)} has written",
            )
        return "uninitialised_read", f"reads {finding.space} memory that nothing has written"
    if finding.kind == "barrier":
        return "divergent_barrier", _barrier(finding)
    if finding.kind == "deadlock":
        return "deadlock", f"waits for ever in {finding.trouble}"
    if finding.kind == "heap":
        return "crash", f"misuses device memory: {finding.trouble.lower()}"
    if finding.kind == "hardware":
        return "crash", finding.text.rstrip(".")
    return None, ""


def _access(finding: Finding, names: Names) -> tuple[MisbehaviourKind, str]:
    verb = {"read": "read", "write": "write", "atomic": "atomic write"}.get(
        finding.access, "access"
    )
    head = f"{verb} of {finding.size_bytes} bytes"
    if finding.address is None:
        return "crash", f"an invalid {head}"
    if "misaligned" in finding.trouble:
        return "crash", f"{head} at the misaligned address 0x{finding.address:x}"
    if finding.space != "global":
        where = f"{finding.space} memory (address 0x{finding.address:x})"
        return "out_of_bounds", f"{head} outside of {where}"
    return "out_of_bounds", f"{head}{_position(finding, finding.address, names)}"


def _position(finding: Finding, address: int, names: Names) -> str:
    """Distances come from the addresses: the tool counts the byte behind the end as 1."""
    near = finding.nearest
    if address < 1 << 16:
        return f" through a null pointer (address {address})"
    if near is None:
        return f" at address 0x{address:x}, which belongs to no allocation"
    name = _allocation(near.size_bytes, names)
    end = near.begin + near.size_bytes
    if address < near.begin:
        return f", {near.begin - address} bytes before the start of {name}"
    if address >= end:
        return f", {address - end} bytes past the end of {name}"
    if finding.size_bytes is not None and address + finding.size_bytes > end:
        return f", across the end of {name}, {address + finding.size_bytes - end} bytes past it"
    return f" in {name}: {finding.trouble}"


def _allocation(size_bytes: int, names: Names) -> str:
    """By its size, where only one has it: the tool prints addresses, which nobody else knows."""
    known = [e.name for e in names.extents if e.size_bytes == size_bytes]
    if len(known) == 1:
        return f"allocation {known[0]} (size {size_bytes} bytes)"
    return f"{UNNAMED} {size_bytes} bytes"


def _barrier(finding: Finding) -> str:
    if finding.trouble.startswith("Divergent thread(s) in block"):
        return f"not all threads of {_block(finding.block)} reach this barrier"
    if finding.trouble.startswith("Divergent thread(s) in warp"):
        return f"not all threads of a warp of {_block(finding.block)} reach this barrier"
    return f"a barrier is used wrongly: {finding.trouble.lower() or 'no reason is given'}"


def _race(finding: Finding, names: Names) -> list[Misbehaved]:
    """One record a line that takes part, each naming the line it races with."""
    if finding.access not in ("read", "write") or not finding.others:
        text = "threads race on shared memory with no barrier between them"
        place = _located(finding.places, names)
        return [_misbehaved("shared_race", text, finding, place, names)]
    first = Other("read" if finding.access == "read" else "write", finding.places[0])
    pairs = [(first, other) for other in finding.others]
    pairs += [(b, a) for a, b in pairs if a.place != b.place]
    spelled = []
    for here, there in pairs:
        whom = _located((there.place,), names)
        text = (
            f"{here.access} of shared memory that another thread {there.access}s at "
            f"{whom or 'an unknown line'} with no barrier between them"
        )
        place = _located((here.place,), names)
        spelled.append(_misbehaved("shared_race", text, finding, place, names))
    return spelled


def _misbehaved(
    what: MisbehaviourKind,
    text: str,
    finding: Finding,
    place: SourceLocation | None,
    names: Names,
) -> Misbehaved:
    known = [names.kernels[p.function] for p in finding.places if p.function in names.kernels]
    if not known and len(set(names.kernels.values())) == 1:
        known = list(names.kernels.values())
    head = f"{known[-1]}: " if known else ""
    tail = ""
    if finding.kind == "access" and finding.thread is not None:
        tail = f", thread {_triple(finding.thread)} of {_block(finding.block)}"
    return Misbehaved(what=what, message=head + text + tail, location=place, log=finding.text)


def _located(places: Collection[Place], names: Names) -> SourceLocation | None:
    """The innermost place in the author's own text; None where a name could mean two files."""
    for place in places:
        if place.file is None or place.line is None:
            continue
        file = _own_file(place.file, {*names.author_files, CANDIDATE_FILE})
        if file is not None:
            return SourceLocation(file=file, line=place.line)
    return None


def _own_file(printed: str, known: Collection[str]) -> str | None:
    """The tool prints bare names by default, and whole paths before 2022."""
    path = PureWindowsPath(printed).as_posix().removeprefix("./")
    if path in known and ("/" in path or _alone(path, known)):
        return path
    matches = [k for k in known if path.endswith("/" + k)]
    if matches:
        return max(matches, key=len)
    if "/" in path:
        return None
    named = [k for k in known if PurePosixPath(k).name == path]
    return named[0] if len(named) == 1 else None


def _alone(name: str, known: Collection[str]) -> bool:
    return sum(PurePosixPath(k).name == name for k in known) == 1


def _triple(index: Index) -> str:
    return f"({index[0]},{index[1]},{index[2]})"


def _block(index: Index | None) -> str:
    return "a block" if index is None else f"block {_triple(index)}"
