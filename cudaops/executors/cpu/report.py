"""The report that `cpu/src/report.cpp` writes: tab-separated lines, one fact each.

The code under test runs in the process that writes it and may have written any of it.
"""

from __future__ import annotations

import re
import signal
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, cast, get_args

from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import (
    IN_NO_ORDER,
    WRITES_THE_SAME,
    Misbehaved,
    MisbehaviourKind,
    UnorderedAccess,
)
from cudaops.errors import SandboxUnavailable
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import PRINTED_BYTES, Finished, last_words, run_bounded
from cudaops.executors.untrusted_files import UntrustedFileError, open_untrusted
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.candidate import NAMESPACE

MAX_WARNINGS = 16
MOST_LOOKED_AT = 4096
"""Warnings whose places are looked up; the checker reports a pair of places once."""
MOST_FRAMES = 64
"""Of the host's stack where it failed: as many as `report.cpp` writes."""
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
    b"accesses after also arg before began config count cut end fault field frame full gafter"
    b" gbefore graph host image kept ktimed lacks limit needs ok other overdue overflow paused"
    b" place reached refused running stopped symbol timed unfollowed unopened unordered unseen"
    b" usage warn".split()
)
_REPEATED = (b"full", b"refused")
"""Written at every launch, in the same words."""
_UNUSED = re.compile(rb"usage\t[^\t\n]*\t[^\t\n]*\t[^\t\n]*\t0[\t\n]")
"""Of a configuration whose contents were not kept: nobody asks for it."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_TOKEN = re.compile(r"@([PNA])(-?[0-9]{1,9})@")
_ELEMENT = re.compile(r"@E(-?[0-9]{1,9}):([0-9]{1,18}):([0-9]{1,9})@")
"""A place in an allocation: its number, bytes from its beginning, bytes that were accessed."""
_ADDRESS = re.compile(r"[0-9a-f]{1,16}")


class ReportNames(NamedTuple):
    """What numbers in messages are called by the author."""

    author_files: tuple[str, ...]
    parameters: dict[str, tuple[str, ...]]
    """Kernel to its parameters' names, in order."""
    allocations: dict[int, str]
    """Allocation number to a name; scratch buffers are -2, -3, ..."""
    element_bytes: Mapping[int, int] = MappingProxyType({})
    """Of an allocation's elements, where they are known."""

    def spell(self, text: str, kernel: str) -> str:
        """Replace the runtime's tokens: a parameter's allocation, a parameter, an allocation."""

        def spelled(found: re.Match[str]) -> str:
            number = int(found[2])
            if found[1] == "A":
                return self.allocations.get(number, f"#{number}")
            names = self.parameters.get(kernel, ())
            return names[number] if 0 <= number < len(names) else f"#{number + 1}"

        def element(found: re.Match[str]) -> str:
            number, offset, size = (int(part) for part in found.groups())
            index = offset // max(1, self.element_bytes.get(number, size))
            return f"{self.allocations.get(number, f'#{number}')}[{index}]"

        return _TOKEN.sub(spelled, _ELEMENT.sub(element, text))


class CheckerReport(NamedTuple):
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


def read_report(path: Path) -> CheckerReport:
    """An absent report is an empty one: the child died before it began."""
    try:
        with open_untrusted(path.parent, path.name) as file:
            return report_of(file)
    except UntrustedFileError as wrong:
        return CheckerReport(()) if wrong.absent else CheckerReport((), bad_report(str(wrong)))


def report_of(file: BinaryIO) -> CheckerReport:
    """Read line by line, so that memory is bounded whatever is in the file.

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
    return CheckerReport(tuple(_fields(line) for line in kept), problem)


def _fields(line: bytes) -> tuple[str, ...]:
    text = line[:-1].decode("utf-8", "replace")
    return tuple(_CONTROL.sub("\ufffd", text).split("\t", _MOST_FIELDS))


def _flood() -> Misbehaved:
    text = f"more than {MOST_BYTES >> 20} MiB, {MOST_LINES:,} lines or {MOST_KEPT_LINES:,} facts"
    return Misbehaved(what="output_flood", message=f"the report of the run is too long: {text}")


def find_fault(
    report: CheckerReport, done: Finished, executable: Path, names: ReportNames, timeout_s: float
) -> Misbehaved | None:
    """What ended the child before its time, as a record; None where it came to its end.

    Raises SandboxUnavailable where the runtime itself could not go on.
    """
    log = done.stderr[-4096:]
    for kind, pc, kernel, message in (tuple(f[:4]) for f in report.all("fault") if len(f) >= 4):
        if kind == "infrastructure":
            remedy = "free memory, processes or disk space and run again"
            raise SandboxUnavailable(f"the cpu executor failed: {message[:300]}", remedy)
        at = _address(pc)
        place = locate(executable, [at], names.author_files).get(at)
        if place is None and not kernel:
            place = _nearest_caller(report, executable, names)
        text = f"{kernel}: " * bool(kernel) + names.spell(message[:MOST_MESSAGE], kernel)
        if not kernel and kind == "crash":
            text += _said(log)
        return _misbehaved(kind, text, place, log)
    if done.timed_out:
        text = f"did not end within {timeout_s:g} s and was stopped"
        if running := [line[0] for line in report.all("running") if line]:
            text = (
                f"a launch of {running[0]} did not end within {timeout_s:g} s on this machine's "
                "processor; give it less to do by arguments (--args), constants of the text "
                '(--nvcc "-DN=..."), or use --executor cuda'
            )
        return _misbehaved("timeout", text, None, log)
    if done.exceeded:
        what = "output_flood" if done.flooded else "crash"
        return _misbehaved(what, done.exceeded, None, log)
    if done.flooded:
        text = (
            f"printed more than {PRINTED_BYTES >> 20} MiB and was stopped; give it "
            'arguments or input (`--args "64 < in.txt"`) with which it prints less'
        )
        return _misbehaved("output_flood", text, None, log)
    if done.exit_code < 0:
        number = -done.exit_code
        name = signal.Signals(number).name if number in set(signal.Signals) else "unknown"
        text = f"the process was ended by signal {number} ({name}){_said(log)}"
        return _misbehaved("crash", text, None, log)
    return report.problem


def _nearest_caller(
    report: CheckerReport, executable: Path, names: ReportNames
) -> SourceLocation | None:
    """The author's line from which a function was called that failed in no line of theirs."""
    frames = [_address(frame[0]) for frame in report.all("frame") if frame][:MOST_FRAMES]
    places = locate(executable, frames, names.author_files)
    return next((places[frame] for frame in frames if frame in places), None)


def _said(log: str) -> str:
    said = last_words(log)
    return f" ({said})" if said else ""


def find_warnings(
    report: CheckerReport, executable: Path, names: ReportNames
) -> tuple[Misbehaved, ...]:
    """Findings of the checker that did not end the run, each place pair once; what may be a habit
    of the author's hides nothing else, nor does one habit another."""
    said = [tuple(w[:5]) for w in report.all("warn")[:MOST_LOOKED_AT] if len(w) >= 5]
    times: dict[str, int] = {}
    ranks = []
    for one in said:
        habit = _habit_of(one[4])
        times[habit] = times.get(habit, 0) + bool(habit)
        ranks.append(times[habit])
    raw = [said[at] for at in sorted(range(len(said)), key=lambda at: ranks[at])]
    places = locate(executable, [_address(p) for w in raw for p in w[1:3]], names.author_files)
    found: dict[tuple[str, str, str, str], Misbehaved] = {}
    for kind, pc, other, kernel, message in raw:
        here, there = places.get(_address(pc)), places.get(_address(other))
        if kind == "divergent_barrier" and "others wait" in message and here == there:
            continue  # copies of one barrier that the compiler made
        text = names.spell(message[:MOST_MESSAGE], kernel)
        text = text.replace("@OTHER@", str(there or "an unknown line"))
        key = (kind, str(here), str(there), _habit_of(message))
        if key not in found and len(found) < MAX_WARNINGS:
            found[key] = _misbehaved(kind, f"{kernel}: {text}", here, "")
    return tuple(found.values())


def _habit_of(message: str) -> str:
    """What of a race may be a habit of the author's; empty: nothing."""
    if WRITES_THE_SAME in message:
        return WRITES_THE_SAME
    return message.partition(IN_NO_ORDER)[2]


def find_unordered(
    report: CheckerReport, executable: Path, names: ReportNames
) -> tuple[UnorderedAccess, ...]:
    """What the checker saw of reads and writes in no order, each pair of lines once."""
    raw = [tuple(u[:5]) for u in report.all("unordered")[:MOST_LOOKED_AT] if len(u) >= 5]
    places = locate(executable, [_address(p) for u in raw for p in u[3:5]], names.author_files)
    found: dict[UnorderedAccess, None] = {}
    for scope, space, how, pc, other in raw:
        if scope not in ("warp", "block", "grid") or space not in ("shared", "global"):
            continue
        here, there = places.get(_address(pc)), places.get(_address(other))
        read, write = (there, here) if how == "write" else (here, there)
        pair = UnorderedAccess.model_validate(
            {"scope": scope, "space": space, "read": read, "write": write}
        )
        found.setdefault(pair)
    return tuple(found)[:MAX_WARNINGS]


def _address(text: str) -> int:
    """0 for what is none."""
    return int(text, 16) if _ADDRESS.fullmatch(text) else 0


def _misbehaved(kind: str, message: str, place: SourceLocation | None, log: str) -> Misbehaved:
    what = cast(MisbehaviourKind, kind if kind in get_args(MisbehaviourKind) else "crash")
    text = " ".join(message.split())[:MOST_MESSAGE]
    return Misbehaved(what=what, message=text, location=place, log=log)


TOOL_TIMEOUT_S = 30.0
_LOCAL = re.compile(r"^(?P<function>.+\))::[^()]+$")
"""A variable in a function, demangled: `void k<float>(float*)::tile`."""
_BEGIN = "cudaops_shared_begin"
"""Linked before the author's object, by `cpu/src/first.cpp`."""
_GUARD = "guard variable for "
"""How nm writes the name that g++ gives to a variable's guard."""
_TLS = 0x400000
"""Where a non-PIE executable is linked; smaller values are offsets into thread-local storage."""
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?: \(.*\))?$")


def locate(
    executable: Path, addresses: Sequence[int], author_files: Collection[str]
) -> dict[int, SourceLocation]:
    """Innermost place in the author's own text for each address, inlined calls followed outwards.

    Addresses may be return addresses: the instruction before is looked up. What has no line in the
    author's text is absent.
    """
    known = frozenset({*author_files, CANDIDATE_FILE})
    wanted = {a for a in addresses if a > 1}
    key = (executable, known)
    with _lock:
        before = _looked_up.get(key, {})
    places = {a: before[a] for a in wanted if a in before}
    if missing := sorted(wanted - places.keys()):
        places |= _looked_up_now(executable, missing, known)
        with _lock:
            _looked_up[key] = places if len(before) > MOST_LOOKED_AT else {**before, **places}
            _looked_up.move_to_end(key)
            while len(_looked_up) > MOST_EXECUTABLES:
                _looked_up.popitem(last=False)
    return {a: place for a, place in places.items() if place is not None}


MOST_EXECUTABLES = 64
_Places = dict[int, SourceLocation | None]
_looked_up: OrderedDict[tuple[Path, frozenset[str]], _Places] = OrderedDict()
"""By executable, whose folder names what it was built from: hundreds of runs of one report the same
few addresses."""
_lock = threading.Lock()


def _looked_up_now(executable: Path, wanted: Sequence[int], known: Collection[str]) -> _Places:
    """By addr2line; empty where that failed."""
    listed = [hex(a - 1) for a in wanted]
    command = ["addr2line", "-a", "-i", "-e", str(executable), *listed]
    done = run_bounded(
        command, cwd=executable.parent, timeout_s=TOOL_TIMEOUT_S, confine=_reading(executable)
    )
    if done.exit_code != 0:
        return {}
    found: _Places = dict.fromkeys(wanted)
    current = 0
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            current = int(line, 16) + 1
            continue
        place = _PLACE.match(line)
        if place is None or found.get(current) is not None:
            continue
        file = _relative(place["file"], known)
        if file is not None and int(place["line"]) > 0:
            found[current] = SourceLocation(file=file, line=int(place["line"]))
    return found


def _reading(executable: Path) -> Confinement:
    return Confinement("compile", reads=(executable.parent,))


def _relative(path: str, known: Collection[str]) -> str | None:
    """The author's name of a file that the line table spells with folders before it."""
    clean = path.replace("/./", "/").removeprefix("./")
    if clean in known:
        return clean
    return next((k for k in sorted(known, key=len, reverse=True) if clean.endswith("/" + k)), None)


def function_names(executable: Path, addresses: Collection[int]) -> dict[int, str]:
    """Demangled names of functions by address: `void ops::scale<float, 4>(float*, int)`."""
    if not addresses:
        return {}
    command = ["nm", "-C", "--defined-only", str(executable)]
    done = run_bounded(
        command, cwd=executable.parent, timeout_s=TOOL_TIMEOUT_S, confine=_reading(executable)
    )
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        parts = line.split(" ", 2)
        if len(parts) == 3 and parts[1] in "tTwW" and (address := int(parts[0], 16)) in addresses:
            found.setdefault(address, parts[2])
    return found


class SharedMemory(NamedTuple):
    """An executable's static shared arrays, which are thread-local variables of its functions."""

    bytes_of: dict[str, int]
    """Bytes by demangled function, as linked."""
    guards: tuple[int, ...]
    """Where g++ notes, in a byte of its own, that an array of a class with constructors was set up:
    distances from `cudaops_shared_begin`, ascending. No author's variable lies there."""
    own: tuple[tuple[int, int], ...] = ()
    """Address and bytes of the variables that a rewrite brings along."""


def shared_memory(executable: Path) -> SharedMemory:
    """Read the table of symbols."""
    command = ["nm", "-C", "-S", "--defined-only", str(executable)]
    done = run_bounded(
        command, cwd=executable.parent, timeout_s=TOOL_TIMEOUT_S, confine=_reading(executable)
    )
    bytes_of: dict[str, int] = {}
    guards: list[int] = []
    begin = 0
    own: list[tuple[int, int]] = []
    for line in done.stdout.splitlines():
        parts = line.split(" ", 3)
        if len(parts) != 4 or parts[2] not in "bBdDuVv":
            continue
        at = int(parts[0], 16)
        if at >= _TLS:
            if parts[3].startswith(f"{NAMESPACE}::"):
                own.append((at, int(parts[1], 16)))
            continue
        if parts[3] == _BEGIN:
            begin = at
        elif parts[3].startswith(_GUARD):
            guards.append(at)
        elif local := _LOCAL.match(parts[3]):
            function = local["function"]
            bytes_of[function] = bytes_of.get(function, 0) + int(parts[1], 16)
    after = tuple(sorted(at - begin for at in guards if at >= begin))
    return SharedMemory(bytes_of, after, tuple(sorted(own)))
