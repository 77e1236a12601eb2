"""Launches as they were seen, written as the directives of a launch plan.

What was seen for one workload is a number; over several it is a name that has these values, or a
choice between them by the sizes that tell the workloads apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from fractions import Fraction
from itertools import combinations, takewhile, zip_longest
from typing import NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import RecordedLaunch
from cudaops.domain.program import Kernel
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    FLOATING,
    Argument,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.errors import InputError
from cudaops.program.instances import template_arguments
from cudaops.program.plans import pointee_bytes
from cudaops.program.seen_launches import pinning

WORD_BYTES = 8
_RESTRICT = re.compile(r"\b__restrict(__)?\b")
_FILL = "fill_memory"
_FILL_THREADS = 256
_FILL_SOURCE = f"""
__global__ void {_FILL}(unsigned char* memory, int value, unsigned long long bytes) {{
    unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < bytes) memory[at] = (unsigned char)value;
}}
"""
"""What cudaMemset does, as a kernel."""


class LaunchNumber(NamedTuple):
    """A number that a launch was given."""

    value: int | float
    name: str = ""
    """Of the parameter."""
    position: int = -1


class Packed(NamedTuple):
    """A structure that the baseline is not given: its bytes, and what its pointers point to."""

    raw_hex: str
    pointers: tuple[tuple[int, str], ...]
    """Byte at which each stands, and its value as an expression."""

    def words(self) -> list[int]:
        """Its bytes as signed little-endian words, the last one filled up with zeros."""
        data = bytes.fromhex(self.raw_hex)
        data += bytes(-len(data) % WORD_BYTES)
        return [
            int.from_bytes(data[i : i + WORD_BYTES], "little", signed=True)
            for i in range(0, len(data), WORD_BYTES)
        ]


class StructurePointer(NamedTuple):
    """A pointer that the baseline is given in a structure, which a plan hands on whole."""

    structure: str
    """The baseline's parameter."""
    path: str
    """From that parameter on: `task.values`."""
    offset_bytes: int


Given = LaunchNumber | Packed | StructurePointer | str
"""A string is an expression of the plan as it is."""


@dataclass(frozen=True)
class PlanLaunch:
    """One launch of the plan, for one workload."""

    kernel: str
    callee: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem: int
    given: tuple[Given, ...]
    scratch: Mapping[str, int]
    """Name to bytes of the scratch buffers that it reaches."""

    @staticmethod
    def setting(
        scratch: str | None, allocation: int | None, size: int, value: int, workload: Workload
    ) -> PlanLaunch:
        """What `cudaMemset` does, as a launch."""
        text: Given = scratch or ""
        if scratch is None:
            assert allocation is not None
            text = _pointer_text(workload, allocation, 0, "", None)
        if isinstance(text, StructurePointer):
            raise InputError(f"cudaMemset clears `{text.path}`, a member of the author's structure")
        blocks = -(-size // _FILL_THREADS)
        return PlanLaunch(
            _FILL, _FILL, (blocks, 1, 1), (_FILL_THREADS, 1, 1), 0,
            (text, LaunchNumber(value), LaunchNumber(size)),
            {} if scratch is None else {scratch: size},
        )  # fmt: skip

    def agrees(self, other: PlanLaunch) -> bool:
        """Whether both differ in numbers alone."""
        shapes = [
            (s.callee, [g if isinstance(g, str) else _shape(g) for g in s.given], set(s.scratch))
            for s in (self, other)
        ]
        return shapes[0] == shapes[1]


def _shape(given: LaunchNumber | Packed | StructurePointer) -> object:
    match given:
        case Packed(raw_hex, pointers):
            return len(raw_hex), pointers
        case StructurePointer():
            return given
    return LaunchNumber


class PlanText(NamedTuple):
    """A plan and the device code that it needs beside the program's own."""

    directives: str
    helpers: str
    kernels: tuple[str, ...]
    """The program's own, in the order of their first launch."""
    entries: Mapping[str, Mapping[int, Packed | StructurePointer]]
    """Kernel to the arguments, by position, that its entry puts together: see `entry_source`."""
    callees: Mapping[str, str]
    """The instance of each that is launched."""


def entry_name(kernel: str) -> str:
    """The kernel that puts arguments of another one together and then is that one; of the same
    instance where the other is one of a template: numbers in front are named, the rest is what the
    entry has by default, since types of a rewrite's own have no name outside of it."""
    name, angle, _ = kernel.partition("<")
    numbers = takewhile(str.isdigit, template_arguments(kernel) if angle else ())
    return f"{name}_entry<{', '.join(numbers)}>" if angle else f"{name}_entry"


def entry_source(
    kernel: Kernel,
    made: Mapping[int, Packed | StructurePointer],
    author: Kernel,
    attributes: str,
    callee: str,
) -> str:
    """That kernel. A structure comes as its words, so that its values stay unknown to the compiler
    as they are in the author's program, with pointers as pointers; the author's structures, of
    which it takes members, come last. A template has the same parameters; `callee` is the instance
    that is launched."""
    listed, body, given = [], [], []
    for position, parameter in enumerate(kernel.parameters):
        one = made.get(position)
        if isinstance(one, Packed):
            name = parameter.name
            places = {at // WORD_BYTES for at, _ in one.pointers}
            words = range(len(one.words()))
            kinds = ["const void*" if i in places else "unsigned long long" for i in words]
            listed += [f"{kind} {name}_{i}" for i, kind in enumerate(kinds)]
            values = ", ".join(f"(unsigned long long){name}_{i}" for i in words)
            kind = parameter.type_text.replace("const ", "").rstrip("& ")
            body.append(f"    unsigned long long {name}_words[{len(words)}] = {{{values}}};\n")
            body.append(f"    {kind} {name};\n    memcpy(&{name}, {name}_words, sizeof({name}));\n")
            given.append(name)
        elif isinstance(one, StructurePointer):
            kind = _RESTRICT.sub("", parameter.type_text)
            given.append(f"({kind})((char*)of_{one.path} + {one.offset_bytes})")
        else:
            listed.append(f"{parameter.type_text} {parameter.name}")
            given.append(parameter.name)
    types = {p.name: p.type_text for p in author.parameters}
    listed += [f"{types[name]} of_{name}" for name in _structures(made.values())]
    header = instance = ""
    if kernel.template_parameters:
        plain = [one.partition("=")[0].rstrip() for one in kernel.template_parameters]
        given_by_default = zip_longest(plain, template_arguments(callee))
        with_defaults = (f"{one} = {value}" if value else one for one, value in given_by_default)
        header = f"template <{', '.join(with_defaults)}>\n"
        instance = f"<{', '.join(one.split()[-1] for one in plain)}>"
    return (
        f"{header}__global__ void {attributes}{entry_name(kernel.plain_name)}"
        f"({', '.join(listed)}) {{\n"
        f"{''.join(body)}    {kernel.plain_name}{instance}({', '.join(given)});\n}}\n"
    )


def _structures(given: Iterable[Given]) -> list[str]:
    """The baseline's parameters that members are taken from, each once."""
    return list(dict.fromkeys(g.structure for g in given if isinstance(g, StructurePointer)))


def seen_as(
    launch: RecordedLaunch,
    kernel: Kernel,
    workload: Workload,
    memory: Mapping[int, tuple[int | None, str | None, int]],
    same_inputs: bool = True,
) -> PlanLaunch:
    """A launch in the terms of the baseline's one. `memory`: for each of its allocations the
    baseline's, or else the scratch buffer that stands for it, and its size in bytes. Without
    `same_inputs` a structure is known by its name and its pointers: bytes that nobody set differ.

    Raises InputError where an argument cannot be expressed.
    """
    given = tuple(
        _given(position, argument, launch, kernel, workload, memory, same_inputs)
        for position, argument in enumerate(launch.arguments)
    )
    return PlanLaunch(
        launch.kernel, launch.callee, _extent(launch.grid), _extent(launch.block),
        launch.dynamic_smem_bytes, given,
        {name: size for _, name, size in memory.values() if name is not None},
    )  # fmt: skip


def _extent(extent: Dim3) -> tuple[int, int, int]:
    return extent.x, extent.y, extent.z


def _given(
    position: int,
    argument: Argument,
    launch: RecordedLaunch,
    kernel: Kernel,
    workload: Workload,
    memory: Mapping[int, tuple[int | None, str | None, int]],
    same_inputs: bool,
) -> Given:
    def pointer(index: int, offset: int, name: str) -> str | StructurePointer:
        allocation, scratch, _ = memory[index]
        if scratch is not None:
            return scratch if offset == 0 else f"{scratch} + {offset}"
        assert allocation is not None
        return _pointer_text(workload, allocation, offset, name, kernel)

    match argument:
        case NullArgument():
            return "nullptr"
        case PointerArgument():
            return pointer(argument.allocation, argument.offset_bytes, argument.name)
        case ScalarArgument():
            return LaunchNumber(argument.value, argument.name, position)
        case OpaqueArgument():
            whole = _same_structure(argument, workload, memory, same_inputs)
            if whole is not None:
                return whole
            pointers = tuple(
                (p.at_bytes, pointer(p.allocation, p.offset_bytes, p.path))
                for p in argument.pointers
            )
            plain = tuple((at, value) for at, value in pointers if isinstance(value, str))
            if plain != pointers or any(at % WORD_BYTES for at, _ in plain):
                raise InputError(
                    f"parameter `{argument.name}` of `{launch.kernel}` is a structure that "
                    f"`{kernel.name}` is given nothing to put together from"
                )
            return Packed(argument.raw_hex, plain)


def _same_structure(
    argument: OpaqueArgument,
    workload: Workload,
    memory: Mapping[int, tuple[int | None, str | None, int]],
    same_inputs: bool,
) -> str | None:
    """The baseline's parameter that holds the same structure."""
    wanted = [(p.at_bytes, memory[p.allocation][0], p.offset_bytes) for p in argument.pointers]
    for other in workload.arguments:
        if not isinstance(other, OpaqueArgument):
            continue
        alike = other.name == argument.name and len(other.raw_hex) == len(argument.raw_hex)
        if other.raw_hex == argument.raw_hex or (alike and not same_inputs):
            has = [(p.at_bytes, p.allocation, p.offset_bytes) for p in other.pointers]
            if has == wanted:
                return other.name
    return None


def _pointer_text(
    workload: Workload, allocation: int, offset_bytes: int, name: str, kernel: Kernel | None
) -> str | StructurePointer:
    """An expression for an address in the baseline's memory; the parameter of this name first."""
    pointing = [
        a
        for a in workload.arguments
        if isinstance(a, PointerArgument) and a.allocation == allocation
    ]
    if not pointing:
        structure, field = next(
            (a.name, field)
            for a in workload.arguments
            if isinstance(a, OpaqueArgument)
            for field in a.pointers
            if field.allocation == allocation
        )
        return StructurePointer(structure, field.path, offset_bytes - field.offset_bytes)
    best = min(pointing, key=lambda a: (a.offset_bytes != offset_bytes, a.name != name))
    distance = offset_bytes - best.offset_bytes
    if distance == 0:
        return best.name
    types = {} if kernel is None else {p.name: p.type_text for p in kernel.parameters}
    step = pointee_bytes(types.get(best.name, "")) or ELEMENT_BYTES[best.element]
    if distance % step:
        raise InputError(
            f"`{name}` points {distance} bytes behind `{best.name}`, between two of its elements"
        )
    return f"{best.name} {'+' if distance > 0 else '-'} {abs(distance) // step}"


def plan_text(
    kernel: Kernel, known: Sequence[tuple[Workload, Sequence[PlanLaunch]]], *, general: bool = False
) -> PlanText:
    """The directives for these workloads, whose steps agree.

    `general`: for launches of every size, where all that is passed follows from the author's launch
    and the grid is in the same proportion to his as here. Else for the numbers that were seen.
    """
    values = _Values(kernel, [workload for workload, _ in known], general)
    launches, scratch = [], {}
    for steps in zip(*(steps for _, steps in known), strict=True):
        launches.append(values.launch(steps))
        for name in steps[0].scratch:
            sizes = [s.scratch[name] for s in steps]
            scratch[name] = f"// @scratch {name} bytes={values.text(sizes)}\n"
    if general and not values.is_general:
        return plan_text(kernel, known)
    first = known[0][1]
    entries = {
        s.kernel: made
        for s in first
        if (
            made := {
                i: g for i, g in enumerate(s.given) if isinstance(g, Packed | StructurePointer)
            }
        )
    }
    return PlanText(
        "".join([*scratch.values(), *launches, *values.requires()]),
        _FILL_SOURCE if any(s.kernel == _FILL for s in first) else "",
        tuple(dict.fromkeys(s.kernel for s in first if s.kernel != _FILL)),
        entries,
        {s.kernel: s.callee for s in first},
    )


_FACTORS = range(1, 65)
"""Elements a thread, or threads an element."""


_WARP = 32
_COUNTS = (1, 2, 4, 8)
"""Elements a thread, or a warp, where an argument says how many there are."""
_MULTIPLES = frozenset({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64})
"""Of such a number: bytes an element, elements of a structure, slots an element."""
_COUNTED = 48
"""Such an argument is at least: smaller ones are radii and modes."""


def _sizes(steps: Sequence[PlanLaunch]) -> list[int | float]:
    """Bytes that launches of `_FILL` set."""
    return [g.value for s in steps for g in s.given[-1:] if isinstance(g, LaunchNumber)]


def _is_power_of_two(part: Fraction) -> bool:
    return all(n & (n - 1) == 0 for n in part.as_integer_ratio())


def _share_of(name: str, part: Fraction) -> str:
    """`part` of a number, rounded up."""
    above, below = part.numerator, part.denominator
    whole = name if above == 1 else f"{name} * {above}"
    return whole if below == 1 else f"({whole} + {below - 1}) / {below}"


class _Values:
    """Numbers of several workloads as expressions."""

    def __init__(
        self, kernel: Kernel, workloads: Sequence[Workload], general: bool = False
    ) -> None:
        self.is_general = general
        """Until a number was written that may depend on an integer of the author's launch."""
        self.position = {p.name: i for i, p in enumerate(kernel.parameters)}
        self.integers: dict[str, list[int]] = {}
        self.floats: dict[str, list[float]] = {}
        numbers = [w.numbers() for w in workloads]
        for name, (element, _) in numbers[0].items():
            if element in FLOATING:
                self.floats[name] = [float(one[name][1]) for one in numbers]
            else:
                self.integers[name] = [int(one[name][1]) for one in numbers]
        self.geometry = {
            f"{root}.{axis}": [getattr(getattr(w, field), axis) for w in workloads]
            for root, field in (("gridDim", "grid"), ("blockDim", "block"))
            for axis in "xyz"
        }
        self.smem = [w.dynamic_smem_bytes for w in workloads]
        self.count = len(workloads)
        self.has_structures = any(isinstance(a, OpaqueArgument) for a in workloads[0].arguments)
        self.holds_floats = False
        """Whether a number was written that may depend on one of the floating parameters."""

    def launch(self, steps: Sequence[PlanLaunch]) -> str:
        """The directive of one step."""
        first = steps[0]
        grid = ",".join(self._blocks(steps, axis) for axis in range(3))
        block = ",".join(self._threads([s.block[axis] for s in steps]) for axis in range(3))
        arguments: list[str] = []
        for index, given in enumerate(first.given):
            arguments += self._arguments(given, [s.given[index] for s in steps])
        arguments += _structures(first.given)
        has_entry = any(isinstance(g, Packed | StructurePointer) for g in first.given)
        callee = entry_name(first.callee) if has_entry else first.callee
        smem = self._shared([s.smem for s in steps])
        return (
            f"// @launch {callee} grid=({grid}) block=({block}) smem={smem} "
            f"args=({', '.join(arguments)})\n"
        )

    def _arguments(self, first: Given, given: Sequence[Given]) -> list[str]:
        if isinstance(first, str):
            return [first]
        if isinstance(first, StructurePointer):
            return []
        if isinstance(first, LaunchNumber):
            numbers = [g for g in given if isinstance(g, LaunchNumber)]
            return [self.text([n.value for n in numbers], first.name, first.position)]
        self.holds_floats = True
        places = dict(first.pointers)
        words = [g.words() for g in given if isinstance(g, Packed)]
        return [
            places.get(i * WORD_BYTES) or self.text([w[i] for w in words])
            for i in range(len(words[0]))
        ]

    def text(self, values: Sequence[int | float], name: str = "", position: int = -1) -> str:
        """An expression that has these values, one a workload."""
        known = {**self.integers, **self.floats}
        same = [n for n, v in known.items() if v == list(values)]
        if name in same:
            return name
        if name and same and any(v not in (0, 1) or isinstance(v, float) for v in values):
            return max(same, key=lambda n: self._alike(n, name, position))
        if scaled := self._scaled(values):
            return scaled
        if len(set(values)) == 1:
            return self._literal(values[0])
        varying = [*same, *(n for n, v in self.geometry.items() if v == list(values))]
        return varying[0] if varying else self._choice(values)

    def _scaled(self, values: Sequence[int | float]) -> str:
        """A multiple of a number of the author's launch, or of a product of two, where a plan is to
        serve launches of every size: bytes of a workspace, slots of a table. Empty if none is."""
        if not self.is_general:
            return ""
        for names, product in self._products():
            factor = int(values[0]) // product[0]
            if (
                min(product) >= _COUNTED
                and (factor > 1 or len(names) > 1)
                and factor in _MULTIPLES
                and list(values) == [factor * p for p in product]
            ):
                return " * ".join([*([str(factor)] if factor > 1 else []), *names])
        return ""

    def _products(self) -> Iterator[tuple[tuple[str, ...], list[int]]]:
        """The integers of the author's launch, then products of two, one value a workload."""
        counts = {n: v for n, v in self.integers.items() if min(v) > 1}
        for names in (*combinations(counts, 1), *combinations(counts, 2)):
            yield names, [math.prod(each) for each in zip(*(counts[n] for n in names), strict=True)]

    def _blocks(self, steps: Sequence[PlanLaunch], axis: int) -> str:
        """Blocks along an axis: by the author's grid where they cover as much, each thread so many
        elements, or so many threads one."""
        values, letter = [s.grid[axis] for s in steps], "xyz"[axis]
        if steps[0].kernel == _FILL and axis == 0 and (size := self._scaled(_sizes(steps))):
            return f"ceil_div({size}, {_FILL_THREADS})"
        name = f"gridDim.{letter}"
        theirs, threads = self.geometry[name], self.geometry[f"blockDim.{letter}"]
        blocks = {(s.block[axis], there) for s, there in zip(steps, threads, strict=True)}
        if not self.is_general:
            return self.text(values)
        if values == theirs:
            return name
        (own, there), *others = blocks
        shares = (
            [] if others else [s for n in _FACTORS for s in ((there, own * n), (there * n, own))]
        )
        shares += [s for n in _FACTORS for s in ((1, n), (n, 1))]
        parts = [
            part
            for part in (Fraction(*share) for share in shares)
            if values == [math.ceil(part * g) for g in theirs]
        ]
        usual = next((part for part in parts if _is_power_of_two(part)), None)
        if usual is None and not others and (counted := self._counted(values, own)):
            return counted
        if parts:
            return _share_of(name, usual or parts[0])
        return self.text(values)

    def _counted(self, blocks: Sequence[int], threads: int) -> str:
        """Blocks for a number of the author's launch, or for a product of two: one each, or for
        what a block takes by its threads, by its warps or by several of either; empty where none
        is as many."""
        takes = sorted({g * n for g in (threads, threads // _WARP or 1) for n in _COUNTS} | {1})
        for names, product in self._products():
            for per_block in reversed(takes):
                if min(product) >= max(_COUNTED, per_block) and all(
                    math.ceil(p / per_block) == b for p, b in zip(product, blocks, strict=True)
                ):
                    return f"ceil_div({' * '.join(names)}, {per_block})"
        return ""

    def _threads(self, values: Sequence[int]) -> str:
        """Threads of a block along an axis, which launches of every size have where all seen do."""
        return str(values[0]) if len(set(values)) == 1 else self.text(values)

    def _shared(self, values: Sequence[int]) -> str:
        """Bytes of dynamic shared memory: where there are none or as many as the author has, so for
        every size."""
        same = len(set(values)) == 1 and (not values[0] or list(values) == self.smem)
        return str(values[0]) if same else self.text(values)

    def _alike(self, known: str, name: str, position: int) -> tuple[tuple[int, float], bool]:
        """How much speaks for a number of the baseline's; a member goes by its own name."""
        return closeness(known.rpartition(".")[2], name), self.position.get(known) == position

    def _literal(self, value: int | float) -> str:
        if isinstance(value, float):
            self.holds_floats = True
            if not math.isfinite(value):
                raise InputError(f"a launch is given {value}, which no plan can say")
            return repr(value)
        self.is_general = False
        if not -(2**63) < value < 2**63:
            raise InputError(f"a launch is given {value}, which does not fit a plan's 64 bits")
        return str(value)

    def _choice(self, values: Sequence[int | float]) -> str:
        text = self._literal(values[-1])
        for index in reversed(range(self.count - 1)):
            text = f"{self._condition(index)} ? {self._literal(values[index])} : {text}"
        return f"({text})"

    def _condition(self, index: int) -> str:
        """What holds for this workload and for no other one."""
        tables = {**self.integers, **self.geometry}
        for name, values in tables.items():
            if values.count(values[index]) == 1:
                return f"{name} == {values[index]}"
        telling = {n: v for n, v in tables.items() if len(set(v)) > 1}
        if not telling:
            raise InputError("its launches differ where those of the baseline do not")
        return " && ".join(f"{n} == {v[index]}" for n, v in telling.items())

    def requires(self) -> list[str]:
        """The sizes that the numbers were seen with; the grid where a size may be a member."""
        pinned: dict[str, list[int] | list[float]] = {}
        if not self.is_general:
            pinned |= self.integers
        if not self.is_general and (not pinned or self.has_structures):
            pinned |= {n: v for n, v in self.geometry.items() if n.startswith("gridDim")}
        if self.holds_floats:
            pinned |= self.floats
        pinned = {n: v for n, v in pinned.items() if all(abs(x) < 2**63 for x in v)}
        return [f"// @requires {one}\n" for one in pinning(pinned)]


def closeness(name: str, other: str) -> tuple[int, float]:
    """How alike two names are: letters that both begin with, and the share that both have."""
    lower = (name.lower(), other.lower())
    same = (a == b for a, b in zip(*lower, strict=False))
    return sum(takewhile(bool, same)), SequenceMatcher(None, *lower).ratio()
