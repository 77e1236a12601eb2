"""Which memory the launches of a program share, read off their recordings.

A recorder numbers the allocations of each launch anew. Contents tell which are one: what a launch
left is what a later one finds. Where contents cannot tell, the host code's names do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cudaops.domain.execution import RecordedLaunch
from cudaops.domain.program import LaunchSite, Program
from cudaops.domain.workload import Element, OpaqueArgument, PointerArgument
from cudaops.program.lexing import byte_text, closing, lex, plain_text, split_commas

_NAMED_CAST = re.compile(r"\b(?:reinterpret|static|const)_cast\s*<[^()]*?>\s*(?=\()")
_CAST = re.compile(
    r"\(\s*(?:const\s+)?[\w:]+(?:\s+[\w:]+)*(?:\s*<[^()]*>)?\s*(?:const\s*)?\*+\s*\)"
)
_UNWRAPPED = re.compile(r"thrust::raw_pointer_cast\s*(?=\()|\.data\(\)|\.get\(\)|\s+")
_SETS = frozenset({"cudaMemset", "cudaMemsetAsync"})
_COPIES = frozenset({"cudaMemcpy", "cudaMemcpyAsync"})


class Pointing(NamedTuple):
    """One pointer that a launch hands over."""

    position: int
    """Of the argument."""
    name: str
    """The parameter's, or the path of the structure's field."""
    element: Element
    memory: int
    """Index into `RecordedLaunch.memory`."""
    read_only: bool
    spelled: str
    """What the host code calls the memory; empty where nothing tells."""


def pointings(program: Program, launch: RecordedLaunch) -> Iterator[Pointing]:
    """Every pointer of a launch into memory, in the order of the arguments."""
    site = next((s for s in program.launches if s.index == launch.site), None)
    for position, argument in enumerate(launch.arguments):
        spelled = "" if site is None else spelled_at(site, position)
        if isinstance(argument, PointerArgument):
            yield Pointing(
                position, argument.name, argument.element, argument.allocation,
                launch.read_only[position], spelled,
            )  # fmt: skip
        elif isinstance(argument, OpaqueArgument):
            for one in argument.pointers:
                yield Pointing(position, one.path, one.element, one.allocation, one.is_const, "")


def spelled_at(site: LaunchSite, position: int) -> str:
    """What the host code calls the memory that it hands over here."""
    return spelled_memory(site.args[position]) if position < len(site.args) else ""


def spelled_memory(text: str) -> str:
    """An expression without casts and offsets: `(float4*)d_in + n` and `&d_in[0]` are `d_in`."""
    bare = _UNWRAPPED.sub("", _CAST.sub("", _NAMED_CAST.sub("", text)))
    found = re.match(r"[\w:]+(?:(?:\.|->)\w+|\[\w+\])*", bare.lstrip("&("))
    name = found.group() if found else ""
    return name.rpartition("[")[0] or name if "&" in bare and name.endswith("]") else name


@dataclass
class PlanBuffer:
    """Memory that lives through several launches."""

    size_bytes: int
    contents: str
    """Digest, as the last launch seen with it left it."""
    is_written: bool = False
    """Whether any launch seen so far changed it."""
    spelled: set[tuple[int, str]] = field(default_factory=set)
    """Function that launches (its first byte), and what it calls the memory."""


class History:
    """The recorded launches of one program, their memory joined."""

    def __init__(self, program: Program, launches: tuple[RecordedLaunch, ...]) -> None:
        self.program = program
        self.launches = launches
        self.buffers: list[PlanBuffer] = []
        self.pointings = [tuple(pointings(program, launch)) for launch in launches]
        self.of: list[tuple[int, ...]] = []
        """For each launch the buffers of its memory, by index."""
        for index, launch in enumerate(launches):
            self.of.append(self._joined(index, launch))

    def written(self, launch: int) -> frozenset[int]:
        """Buffers that a launch may write."""
        return frozenset(
            self.of[launch][p.memory] for p in self.pointings[launch] if not p.read_only
        )

    def reached(self, launch: int) -> frozenset[int]:
        """Buffers that a launch may read or write."""
        return frozenset(self.of[launch])

    def before(self, launch: int, buffer: int) -> str:
        """Digest of what a launch finds in a buffer of its own."""
        return self.launches[launch].memory[self.of[launch].index(buffer)].before

    def after(self, launch: int, buffer: int) -> str:
        """Digest of what it leaves there."""
        return self.launches[launch].memory[self.of[launch].index(buffer)].after

    def _joined(self, index: int, launch: RecordedLaunch) -> tuple[int, ...]:
        found: list[int] = []
        where = self._function(launch)
        for number, memory in enumerate(launch.memory):
            names = {
                (where, p.spelled)
                for p in self.pointings[index]
                if p.memory == number and p.spelled
            }
            buffer = self._known(memory.size_bytes, memory.before, names, found)
            if buffer is None:
                buffer = len(self.buffers)
                self.buffers.append(PlanBuffer(memory.size_bytes, memory.before))
            self.buffers[buffer].contents = memory.after
            self.buffers[buffer].is_written |= memory.before != memory.after
            self.buffers[buffer].spelled |= names
            found.append(buffer)
        return tuple(found)

    def _function(self, launch: RecordedLaunch) -> int:
        sites = self.program.launches
        return next((s.enclosing_start_byte for s in sites if s.index == launch.site), -1)

    def _known(
        self, size_bytes: int, before: str, names: set[tuple[int, str]], taken: list[int]
    ) -> int | None:
        best: tuple[int, int] | None = None
        for number, buffer in enumerate(self.buffers):
            if buffer.size_bytes != size_bytes or number in taken:
                continue
            named, same = bool(buffer.spelled & names), buffer.contents == before
            # Fresh memory of one size is all alike: what one function has two names for is two.
            # What a launch wrote is known by its contents, whatever pointers were swapped since.
            apart = {w for w, _ in buffer.spelled} & {w for w, _ in names} and not named
            telling = same and (buffer.is_written or not apart)
            rank = 2 * named + (3 if buffer.is_written else 1) * telling
            if rank and (best is None or rank >= best[0]):
                best = (rank, number)
        return None if best is None else best[1]


class HostCall(NamedTuple):
    """A call of the runtime on device memory."""

    memory: str
    """As `spelled_memory`."""
    arguments: tuple[str, ...]


def memory_sets(program: Program) -> tuple[HostCall, ...]:
    """`cudaMemset` and its like."""
    return tuple(_calls(program, _SETS))


def host_copies(program: Program) -> tuple[HostCall, ...]:
    """Copies that fill device memory from the host or from elsewhere on the device."""
    return tuple(c for c in _calls(program, _COPIES) if "DeviceToHost" not in c.arguments[-1])


def calls_of(program: Program, names: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each call of one of these functions anywhere in the program: its name and arguments."""
    for file in program.files:
        lexed = lex(byte_text(file.text))
        tokens = lexed.tokens
        for index, token in enumerate(tokens[:-1]):
            if token.text not in names or tokens[index + 1].text != "(":
                continue
            inner = tokens[index + 2 : closing(tokens, index + 1)]
            parts = [p for p in split_commas(inner, angles=True) if p]
            yield (
                token.text,
                tuple(plain_text(lexed.text[p[0].start : p[-1].end]) for p in parts),
            )


def _calls(program: Program, names: frozenset[str]) -> Iterator[HostCall]:
    for _, arguments in calls_of(program, names):
        if len(arguments) >= 3:
            yield HostCall(spelled_memory(arguments[0]), arguments)
