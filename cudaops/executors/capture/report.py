"""What the recorder reports of launches, as checked values.

The recorded program runs in the recorder's own process: it may have written every line itself.
Whatever a recorder could not have written raises Malformed; what remains is in bounds, and names
nothing outside of the program and of the folder with its contents.
"""

from __future__ import annotations

import math
import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, cast, get_args

from cudaops.domain.base import Dim3
from cudaops.domain.execution import LaunchCount, LaunchNumbers
from cudaops.domain.options import WarmUps
from cudaops.domain.program import SITES_OF_BUILDS, Kernel, Program
from cudaops.domain.workload import (
    Argument,
    Element,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    ScalarArgument,
)
from cudaops.executors.cpu.report import CheckerReport
from cudaops.program.syntax import Layout

FORMATS: dict[str, str] = {
    "f32": "<f", "f64": "<d", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i",
    "u32": "<I", "i64": "<q", "u64": "<Q", "bool": "<?", "f16": "<e",
}  # fmt: skip
MOST_BYTES = 1 << 40
"""Of one allocation or variable: more than any GPU has memory for."""
MOST_ARGUMENTS = 32_764
"""A byte each. Source: CUDA C++ Programming Guide, function parameters."""
_GRID = (2**31 - 1, 65_535, 65_535)
_BLOCK = (1024, 1024, 64)
"""Most of each dimension. Source: CUDA C++ Programming Guide, technical specifications."""
_MOST_SHARED_BYTES = 1 << 20
_MOST_COUNT = 2**63 - 1
_MOST_S = 1e9
_FARTHEST = 1 << 40
"""Bytes from an allocation's start: a pointer may lie before it or behind its end."""
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_SECONDS = re.compile(r"[0-9][0-9.e+-]{0,31}")
_ADDRESS = re.compile(r"[0-9a-f]{1,16}")
_SYMBOL = re.compile(r"[A-Za-z0-9_$.]{1,4096}", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_BLOB = re.compile(r"[0-9a-f]{32}-(?P<size>0|[1-9][0-9]{0,15})")
"""As both recorders name contents: a digest and the number of bytes."""


class Malformed(Exception):
    """A line that no recorder writes; the text says which and why."""


class Configuration(NamedTuple):
    """One recorded set of geometry and arguments, as the report's lines say."""

    number: str
    site: int
    function: int
    geometry: tuple[int, ...]
    smem: int
    launches: int
    seconds: float
    first_launch: int = 0
    """Position among the kernel's launches, where the recorder counts them."""
    within: str = ""
    """Of a launch whose kernel the compiler chose: mangled type of a closure in its function."""
    followed: int = 0
    """Launches right after one of the same configuration on the same allocations."""

    @property
    def follows_itself(self) -> bool:
        """Whether most of its launches found their buffers as the same launch had left them."""
        return 2 * self.followed > self.launches


class Passed(NamedTuple):
    """An argument as the launch gave it."""

    argument: Argument
    to_const: bool
    """Whether a pointer was bound to a parameter of const type."""
    type: str = ""
    """Of a structure, as g++ or nvcc spells it."""
    layouts: tuple[Layout | None, ...] = ()
    """Of the structures that each pointer in it points to, by clang; None where it points to
    numbers, or clang was not asked."""


class PointerWord(NamedTuple):
    """A word in the bytes of a structure that is an address in an allocation."""

    at_bytes: int
    allocation: int
    offset_bytes: int


class Place(NamedTuple):
    """Where an allocation lay in a launch that follows pointers in memory."""

    address: int
    size_bytes: int
    holds_pointers: bool

    def has(self, address: int) -> bool:
        """Whether this is the address of a byte of it."""
        return self.address <= address < self.address + self.size_bytes


class Stored(NamedTuple):
    """Contents around a launch: the names of their files, of exactly so many bytes."""

    size_bytes: int
    before: str
    after: str


MANY, NESTED = 10, 10.0
"""A kernel that a program launches so often outside of what it seems to time, and that takes so
many times as long as all of that, is what it times: clock readings pair up as first and second,
third and fourth only where no timer is around another. Chosen: what fills buffers at the start is
launched a few times."""


def launch_counts(report: CheckerReport, warm_ups: WarmUps = "count") -> tuple[LaunchCount, ...]:
    """How often each kernel was launched, the most expensive first.

    Of what a program times of itself, kernels come before all others, and launches outside of it
    are warm-ups. A timer around another one is told by what it would leave out (`NESTED`): then the
    time of all launches decides. Raises Malformed.
    """
    lines = (_exactly("ktimed", line, 3) for line in report.all("ktimed"))
    timed = {
        name: (_whole("ktimed", launches, 0, _MOST_COUNT), _seconds("ktimed", seconds))
        for name, launches, seconds in (lines if warm_ups == "auto" else ())
    }
    counts = []
    for line in report.all("count"):
        kernel, launches, skipped, spent = _exactly("count", line, 4)
        number, seconds = _whole("count", launches, 1, _MOST_COUNT), _seconds("count", spent)
        counted, counted_s = timed.get(kernel, (0, 0.0))
        left_out = number - counted if 0 < counted <= number else 0
        counts.append(
            LaunchCount(
                kernel=kernel_name("count", kernel),
                launches=number,
                skipped=_whole("count", skipped, 0, number),
                seconds=seconds,
                warm_ups=left_out,
                warm_up_seconds=max(seconds - counted_s, 0.0) if left_out else 0.0,
            )
        )
    is_timed = {name for name, (launches, _) in timed.items() if launches}
    timed_s = sum(seconds for launches, seconds in timed.values() if launches)
    outside = (c for c in counts if c.kernel not in is_timed and c.launches >= MANY)
    if any(c.seconds > NESTED * timed_s for c in outside):
        is_timed.clear()
    counts = [c.model_copy(update={"is_timed": c.kernel in is_timed}) for c in counts]
    return tuple(sorted(counts, key=lambda c: (not c.is_timed, -c.counted_seconds)))


def recorded(
    report: CheckerReport, program: Program, kernel: str, warm_ups: WarmUps = "count"
) -> list[Configuration]:
    """Configurations of a kernel whose contents were kept, the most expensive first.

    Warm-ups are not among their launches and seconds; one that is launched for nothing else comes
    last. Raises Malformed.
    """
    lines = (_exactly("timed", line, 2) for line in report.all("timed"))
    timed = {
        number: _whole("timed", launches, 0, _MOST_COUNT)
        for number, launches in (lines if warm_ups == "auto" else ())
    }
    some = any(timed.get(line[0], 0) for line in report.all("config") if line[1:2] == (kernel,))
    usage = {u[0]: u for u in report.all("usage") if u}
    found: dict[str, Configuration] = {}
    for line in report.all("config"):
        number, name, *rest = _exactly("config", line, 12)
        used = usage.get(number)
        if name != kernel or used is None or used[3:4] != ("1",) or _is_foreign(rest[0], program):
            continue
        if number in found:
            raise Malformed(f"two config lines of number {number[:40]!r}")
        one = _configuration(program, number, rest, used)
        if some:
            share = min(timed.get(number, 0) / one.launches, 1.0)
            one = one._replace(
                launches=max(round(share * one.launches), 1), seconds=share * one.seconds
            )
        found[number] = one
    return sorted(found.values(), key=lambda c: -c.seconds)


def _is_foreign(site: str, program: Program) -> bool:
    """Whether a launch is in a file of the author's build that is none of the program's."""
    number = int(site) if len(site) <= 9 and site.isdecimal() else 0
    return number >= SITES_OF_BUILDS[0] and all(number != one.index for one in program.launches)


def host_pointer(report: CheckerReport, number: str) -> int | None:
    """Position of a parameter that was given a host pointer, if any. Raises Malformed."""
    for line in report.all("host"):
        config, position = _exactly("host", line, 2)
        if config == number:
            return _whole("host", position, 0, MOST_ARGUMENTS)
    return None


def names_of(report: CheckerReport, verb: str) -> list[str]:
    """Kernels that lines of this verb begin with. Raises Malformed."""
    return [kernel_name(verb, line[0] if line else "") for line in report.all(verb)]


def symbols(report: CheckerReport) -> dict[int, str]:
    """Symbols of kernels by the number that stands for each in `config` lines, where the recorder
    saw launches at the driver. Raises Malformed."""
    found = {}
    for line in report.all("symbol"):
        number, name = _exactly("symbol", line, 2)
        if not (_ADDRESS.fullmatch(number) and _SYMBOL.fullmatch(name)):
            raise Malformed("a symbol line without a number or a symbol")
        found[int(number, 16)] = name
    return found


def unseen(report: CheckerReport) -> dict[str, str]:
    """Why launches of a kernel could not be recorded. Raises Malformed."""
    lines = (_exactly("unseen", line, 2) for line in report.all("unseen"))
    return {kernel_name("unseen", name): " ".join(why.split())[:300] for name, why in lines}


def kernel_name(verb: str, text: str) -> str:
    """The same text, which can be shown. Raises Malformed."""
    if not (0 < len(text) <= 512 and text.isprintable()) or "\ufffd" in text:
        raise Malformed(f"a {verb} line names no kernel")
    return text


def least_needed(report: CheckerReport, kernel: str) -> int:
    """Bytes of contents that the smallest configuration of a kernel takes of which none had room;
    0 where the recorder does not say. Raises Malformed."""
    for line in report.all("needs"):
        if len(line) != 2:
            raise Malformed("a needs line of another length")
        if line[0] == kernel:
            return _whole("needs", line[1], 0, _MOST_COUNT)
    return 0


class Launches:
    """The lines of every configuration, taken apart where one is asked for."""

    def __init__(self, program: Program, kernel: Kernel, report: CheckerReport) -> None:
        self._kernel = kernel
        self._variables = {v.qualified_name for v in program.global_variables}
        self._is_of_build = program.build is not None
        self._lines: dict[str, dict[str, list[tuple[str, ...]]]] = {
            verb: defaultdict(list)
            for verb in ("arg", "field", "before", "after", "place", "gbefore", "gafter", "limit")
        }
        for verb, by_number in self._lines.items():
            for line in report.all(verb):
                by_number[line[0] if line else ""].append(line[1:])

    def limits(self, number: str) -> list[str]:
        """Why a configuration cannot be captured; empty where it can."""
        return [line[0][:512] if line else "" for line in self._lines["limit"][number]]

    def passed(self, number: str) -> tuple[Passed, ...]:
        """The arguments in order. Raises Malformed."""
        lines = self._lines["arg"][number]
        allocations = len(self._lines["before"][number])
        return tuple(self._passed(i, line, allocations) for i, line in enumerate(lines))

    def addresses(self, number: str) -> dict[int, tuple[PointerWord, ...]]:
        """Contents of structures, by the argument's position. Raises Malformed."""
        last = len(self._lines["before"][number]) - 1
        found: dict[int, tuple[PointerWord, ...]] = {}
        for line in self._lines["field"][number]:
            at, place, index, offset = _exactly("field", line, 4)
            position = _whole("field", at, 0, MOST_ARGUMENTS)
            address = PointerWord(
                _whole("field", place, 0, MOST_ARGUMENTS),
                _whole("field", index, 0, last),
                _whole("field", offset, -_FARTHEST, _FARTHEST),
            )
            found[position] = (*found.get(position, ()), address)
        return found

    def allocations(self, number: str) -> tuple[Stored, ...]:
        """Those that the pointers reach, by index. Raises Malformed."""
        after = self._after("after", number)
        lines = [_exactly("before", line, 3) for line in self._lines["before"][number]]
        if [line[0] for line in lines] != [str(i) for i in range(len(lines))]:
            raise Malformed("before lines that do not number the allocations")
        return tuple(_stored("before", size, blob, after.get(k)) for k, size, blob in lines)

    def places(self, number: str) -> tuple[Place, ...]:
        """Where they lay, by index; none where no pointers are in memory. Raises Malformed."""
        lines = [_exactly("place", line, 3) for line in self._lines["place"][number]]
        stored = self.allocations(number) if lines else ()
        if [line[0] for line in lines] != [str(i) for i in range(len(stored))]:
            raise Malformed("place lines that do not number the allocations")
        return tuple(
            Place(_whole("place", at, 1, 2**64 - 1), one.size_bytes, holds == "1")
            for one, (_, at, holds) in zip(stored, lines, strict=True)
        )

    def variables(self, number: str) -> tuple[tuple[str, Stored], ...]:
        """The program's own, by name; those of a build's other files are left out, where a header
        may have put the same one as well. Raises Malformed."""
        after = self._after("gafter", number)
        found = list[tuple[str, Stored]]()
        for line in self._lines["gbefore"][number]:
            name, size, blob = _exactly("gbefore", line, 3)
            if name not in self._variables and not self._is_of_build:
                raise Malformed("a gbefore line names no variable of the program")
            one = (name, _stored("gbefore", size, blob, after.get(name)))
            if self._is_of_build and (name not in self._variables or one in found):
                continue
            if self._is_of_build and any(name == other for other, _ in found):
                raise Malformed(f"two files of the build have a variable {name[:80]!r} each")
            found.append(one)
        if len(found) > len(self._variables):
            raise Malformed("more gbefore lines than the program has variables")
        return tuple(sorted(found))

    def _after(self, verb: str, number: str) -> dict[str, str]:
        lines = (_exactly(verb, line, 2) for line in self._lines[verb][number])
        return {line[0]: line[1] for line in lines}

    def _passed(self, position: int, line: tuple[str, ...], allocations: int) -> Passed:
        if len(line) < 2 or line[0] != str(position):
            raise Malformed("arg lines that do not number the arguments")
        kind, rest = line[1], line[2:]
        name = self._parameter(position)
        if kind == "null" and not rest:
            return Passed(NullArgument(name=name), False)
        if kind == "pointer":
            element, const, index, offset = _exactly("arg", rest, 4)
            pointer = PointerArgument(
                name=name,
                element=_element(element),
                allocation=_whole("arg", index, 0, allocations - 1),
                offset_bytes=_whole("arg", offset, -_FARTHEST, _FARTHEST),
            )
            return Passed(pointer, const == "1")
        if kind == "opaque":
            written, raw = _exactly("arg", rest, 2)
            return Passed(OpaqueArgument(name=name, raw_hex=_hex(raw)), False, _type_in(written))
        if kind != "scalar":
            raise Malformed("an arg line of no known kind")
        return Passed(_scalar(name, rest), False)

    def _parameter(self, position: int) -> str:
        parameters = self._kernel.parameters
        return parameters[position].name if position < len(parameters) else f"argument{position}"


def _configuration(
    program: Program, number: str, line: Sequence[str], used: tuple[str, ...]
) -> Configuration:
    """`line` and `used`: behind the number and the kernel of `config`; all of `usage`."""
    site, function, *sizes = line
    sites = {"0"} if program.application else {str(s.index) for s in program.launches}
    if site not in sites:
        raise Malformed("a config line names no launch of the program")
    if not _ADDRESS.fullmatch(function) or not _WHOLE.fullmatch(number):
        raise Malformed("a config line without a function or a number")
    most = (*_GRID, *_BLOCK)
    geometry = tuple(_whole("config", s, 1, m) for s, m in zip(sizes[:6], most, strict=True))
    if math.prod(geometry[3:]) > _BLOCK[0]:
        raise Malformed("a config line with too large a block")
    if len(used) not in (4, 6):
        raise Malformed("a usage line of another length")
    launches = _whole("usage", used[1], 1, _MOST_COUNT)
    counts = [_whole("usage", u, 0, _MOST_COUNT) for u in used[4:]]
    return Configuration(
        number,
        int(site),
        int(function, 16),
        geometry,
        _whole("config", sizes[6], 0, _MOST_SHARED_BYTES),
        launches,
        _seconds("usage", used[2]),
        within=sizes[7],
        **dict(zip(("first_launch", "followed"), counts, strict=False)),
    )


def _type_in(written: str) -> str:
    """The type that `__PRETTY_FUNCTION__` of a template with the parameter T names."""
    return written.partition("T =")[2].strip().removesuffix("]").strip()


def other_launches(report: CheckerReport, kernel: Kernel) -> tuple[LaunchNumbers, ...]:
    """Configurations of a kernel whose contents were not kept, each once. Raises Malformed."""
    found: dict[str, LaunchNumbers] = {}
    for line in report.all("also"):
        name, gx, gy, gz, bx, by, bz, smem, sizes, numbers = _exactly("also", line, 10)
        if name != kernel.name:
            continue
        extents = zip((gx, gy, gz, bx, by, bz), (*_GRID, *_BLOCK), strict=True)
        x, y, z, *block = (_whole("also", text, 1, most) for text, most in extents)
        values: dict[str, int | float] = {}
        for one in filter(None, numbers.split(";")):
            position, *scalar = one.split(":")
            at = _whole("also", position, 0, len(kernel.parameters) - 1)
            argument = _scalar(kernel.parameters[at].name, scalar)
            if isinstance(argument, ScalarArgument):
                values[argument.name] = argument.value
        found["\t".join(line)] = LaunchNumbers(
            grid=Dim3(x=x, y=y, z=z),
            block=Dim3(x=block[0], y=block[1], z=block[2]),
            dynamic_smem_bytes=_whole("also", smem, 0, _MOST_SHARED_BYTES),
            sizes_bytes=tuple(
                _whole("also", size, 0, MOST_BYTES) for size in filter(None, sizes.split(","))
            ),
            numbers=values,
        )
    return tuple(found.values())


def _hex(raw: str) -> str:
    if not _HEX.fullmatch(raw):
        raise Malformed("an arg line without a value")
    return raw


def _scalar(name: str, line: Sequence[str]) -> Argument:
    element, raw = _exactly("arg", line, 2)
    known = _element(element)
    if known not in FORMATS:
        return OpaqueArgument(name=name, raw_hex=_hex(raw))
    data = bytes.fromhex(_hex(raw))
    if len(data) != struct.calcsize(FORMATS[known]):
        raise Malformed(f"an arg line with {len(data)} bytes of {known}")
    value = struct.unpack(FORMATS[known], data)[0]
    return ScalarArgument(name=name, element=known, value=int(value) if known == "bool" else value)


def _stored(verb: str, size: str, before: str, after: str | None) -> Stored:
    number = _whole(verb, size, 0, MOST_BYTES)
    for blob in (before, after):
        found = _BLOB.fullmatch(blob) if blob is not None else None
        if found is None or int(found["size"]) != number:
            raise Malformed(f"a {verb} line without contents of the recorder's own name and size")
    return Stored(number, before, cast(str, after))


def _element(text: str) -> Element:
    if text not in get_args(Element):
        raise Malformed("an arg line of no known element")
    return cast(Element, text)


def _exactly(verb: str, line: Sequence[str], count: int) -> Sequence[str]:
    if len(line) != count:
        raise Malformed(f"a {verb} line of {len(line)} fields instead of {count}")
    return line


def _whole(verb: str, text: str, least: int, most: int) -> int:
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise Malformed(f"a {verb} line with a number out of bounds")
    return int(text)


def _seconds(verb: str, text: str) -> float:
    try:
        value = float(text) if _SECONDS.fullmatch(text) else math.nan
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= _MOST_S:
        raise Malformed(f"a {verb} line without seconds")
    return value
