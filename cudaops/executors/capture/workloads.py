"""Workloads from the report of a whole program that ran with the recorder on."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.base import Dim3
from cudaops.domain.execution import RecordedLaunch, RecordedMemory
from cudaops.domain.program import Kernel, LaunchSite, Program
from cudaops.domain.workload import (
    FLOATING,
    Allocation,
    Argument,
    Element,
    GlobalState,
    OpaqueArgument,
    PointerArgument,
    Role,
    ScalarArgument,
    Workload,
)
from cudaops.errors import InputError
from cudaops.executors.capture.report import (
    Configuration,
    Launches,
    Malformed,
    Passed,
    Place,
    Stored,
    symbols,
)
from cudaops.executors.capture.structures import (
    Linked,
    NotFollowed,
    linked,
    number_fields,
    stands_in,
    takes,
    type_of,
    typed_variables,
    with_pointers,
)
from cudaops.executors.cpu.report import CheckerReport, function_names
from cudaops.executors.cuda.symbols import demangled
from cudaops.executors.untrusted_files import copy_untrusted, discard, read_untrusted, remove
from cudaops.program.front_end import launched_instances
from cudaops.program.instances import callee_of, deduce_instance, plain_name
from cudaops.program.overloads import has_closure
from cudaops.program.syntax import POINTER_BYTES, Layout

TIME_COVERED = 0.9
MAX_WORKLOADS = 5
"""The most expensive configurations that cover 90 % of the kernel's time, at most 5: each is judged
on its own, and what is left out decides little."""
MOST_WORKLOADS = 12
"""With those of further template instances."""
LARGE_BYTES = 1 << 30
"""Of one launch's buffers. Each is copied, read and compared some hundred times before a rewrite is
accepted: five launches of 2.1 GB each took over eight minutes (an H200, 2026-11-26)."""
MOST_LARGE = 2
"""Of launches that large and alike in everything but contents, offsets, floating arguments and what
counts them."""
FEWEST_COUNTED = 4
"""Launches that show an integer to be a counter by each having another."""


_CLOSURES = ("{lambda", "__nv_dl_wrapper_t", "__nv_hdl_wrapper_t")
"""In names of instances, as g++ and nvcc spell the types of lambdas."""


_OBJECTS = re.compile(r"\b(?:cuda(?:Texture|Surface)Object_t|CU(?:tex|surf)Object)\b")


class NotCaptured(InputError):
    """No launch of a kernel can be captured."""


class CaptureFiles(NamedTuple):
    """Where the program's contents and its functions' names are."""

    executable: Path | None
    """Has the names; None: the report does (`report.symbols`)."""
    blobs: Path
    """The folder that the program could write to."""
    most_bytes: int
    """Different contents of all workloads together: twice what the recorder is given room for,
    since variables come on top."""
    has_textures: bool = True
    """Whether what texture and surface objects reach is recorded."""


class _Pointing(NamedTuple):
    """A pointer into an allocation."""

    element: Element
    to_const: bool
    offset_bytes: int
    layout: Layout | None
    """Of the structures that it points to."""


class WorkloadReader:
    """Turns recorded configurations of one kernel into Workloads under a folder."""

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        report: CheckerReport,
        source: CaptureFiles,
        folder: Path,
    ) -> None:
        self.program = program
        self.kernel = kernel
        self.source = source
        self.folder = folder
        self._report = report
        self._launches = Launches(program, kernel, report)
        self._sites = {site.index: (site.file, site.start_byte) for site in program.launches}
        self.alike = 0
        """Configurations that were left out: see `MOST_LARGE`."""
        self._copies: dict[str, Path] = {}
        """By the recorder's name; files of ours, which the program never could open."""
        self._copied = 0

    def read(
        self, configurations: list[Configuration], total_seconds: float
    ) -> tuple[Workload, ...]:
        """Those that cover enough time, and of each other template instance the most expensive: in
        another run that one may be what matters.

        Raises InputError where none can be captured, Malformed and UntrustedFileError where the
        program is not as the recorder says or touched what the recorder left.
        """
        reached = [p.name for p in self.kernel.parameters if _OBJECTS.search(p.type_text)]
        if reached and not self.source.has_textures:
            what = (
                f"what the texture or surface object {reached[0]} reaches is not captured on a GPU"
            )
            raise NotCaptured(self._cannot([what]))
        names = self._names(configurations)
        total = max(total_seconds, 1e-12)
        covered = 0.0
        workloads: list[Workload] = []
        large: Counter[tuple[object, ...]] = Counter()
        reasons: list[str] = []
        for c in configurations:
            if limits := self._launches.limits(c.number):
                reasons.append(limits[0])
                continue
            enough = covered >= TIME_COVERED * total or len(workloads) >= MAX_WORKLOADS
            if enough and not self.kernel.template_parameters:
                break
            passed = self._launches.passed(c.number)
            try:
                callee = self._callee(c, names, passed)
            except InputError as problem:
                reasons.append(str(problem))
                if workloads and not enough:
                    raise
                continue
            if enough and callee in {w.callee for w in workloads}:
                continue
            try:
                self._look_at_pointers(c, callee)
                passed = self._followed(c, callee, passed)
            except NotFollowed as problem:
                reasons.append(str(problem))
                continue
            covered += c.seconds
            sizes = tuple(one.size_bytes for one in self._launches.allocations(c.number))
            if sum(sizes) >= LARGE_BYTES:
                fixed = _fixed(passed, self._counters(configurations))
                kind = (callee, c.geometry, c.smem, sizes, *fixed)
                large[kind] += 1
                if large[kind] > MOST_LARGE:
                    self.alike += 1
                    continue
            workloads.append(self._workload(f"w{len(workloads)}", c, callee, passed, total))
            if len(workloads) == MOST_WORKLOADS:
                break
        if not workloads:
            raise NotCaptured(self._cannot(reasons))
        return tuple(workloads)

    def _counters(self, configurations: list[Configuration]) -> frozenset[int]:
        """Positions of integers of which each of these has another value, as of a loop's counter:
        two of hundreds of launches say as much about it as five."""
        known = [c.number for c in configurations if not self._launches.limits(c.number)]
        values: defaultdict[int, set[object]] = defaultdict(set)
        for number in known:
            for position, p in enumerate(self._launches.passed(number)):
                if isinstance(p.argument, ScalarArgument):
                    values[position].add(p.argument.value)
        if len(known) < FEWEST_COUNTED:
            return frozenset()
        return frozenset(at for at, found in values.items() if len(found) == len(known))

    def launched(
        self, configurations: Iterable[Configuration]
    ) -> Iterator[tuple[int, RecordedLaunch]]:
        """Each with the position of its first launch among those of all configurations. Raises
        Malformed."""
        configurations = list(configurations)
        names = self._names(configurations)
        for c in configurations:
            yield int(c.number), self._recorded(c, names)

    def _names(self, configurations: Iterable[Configuration]) -> dict[int, str]:
        """Of functions, demangled."""
        if self.source.executable is None:
            known = symbols(self._report)
            names = demangled([*known.values()], self.source.blobs)
            return {number: names[symbol] for number, symbol in known.items()}
        functions = {c.function for c in configurations if c.function}
        return function_names(self.source.executable, functions)

    def _recorded(self, c: Configuration, names: dict[int, str]) -> RecordedLaunch:
        gx, gy, gz, bx, by, bz = c.geometry
        seen = RecordedLaunch(
            kernel=self.kernel.name,
            callee=self.kernel.qualified_name,
            site=c.site,
            grid=Dim3(x=gx, y=gy, z=gz),
            block=Dim3(x=bx, y=by, z=bz),
            dynamic_smem_bytes=c.smem,
            arguments=(),
            read_only=(),
            memory=(),
            launches=c.launches,
        )
        if limits := self._launches.limits(c.number):
            return seen.model_copy(update={"problem": self._named(limits[0])})
        passed = self._launches.passed(c.number)
        try:
            callee = self._callee(c, names, passed)
            passed = self._followed(c, callee, passed)
        except (NotFollowed, InputError) as problem:
            return seen.model_copy(update={"problem": str(problem)})
        update = {
            "callee": callee,
            "arguments": tuple(p.argument for p in passed),
            "read_only": tuple(p.to_const or self._is_const(i) for i, p in enumerate(passed)),
            "memory": tuple(
                RecordedMemory(size_bytes=m.size_bytes, before=m.before, after=m.after)
                for m in self._launches.allocations(c.number)
            ),
        }
        return seen.model_copy(update=update)

    def _followed(
        self, c: Configuration, callee: str, passed: tuple[Passed, ...]
    ) -> tuple[Passed, ...]:
        addresses = self._launches.addresses(c.number)
        return with_pointers(self.program, self.kernel, callee, passed, addresses)

    def _look_at_pointers(self, c: Configuration, callee: str) -> None:
        """Raises NotFollowed where a variable that the kernel names points to no allocation."""
        recorded = self._launches.variables(c.number)
        types = typed_variables(self.program, self.kernel, callee, [name for name, _ in recorded])
        pointers = [(n, s) for n, s in recorded if types[n].is_pointer and types[n].is_used]
        for name, stored in pointers:
            known = self._copies.get(stored.before)
            folder, blob = (self.source.blobs, stored.before) if known is None else (
                known.parent, known.name
            )  # fmt: skip
            words = np.frombuffer(read_untrusted(folder, blob, stored.size_bytes), dtype="<u8")
            places = self._launches.places(c.number)
            if not all(any(place.has(int(word)) for place in places) for word in words[words > 0]):
                raise NotFollowed(
                    f"the variable {name} points to memory that is not an allocation: device-side "
                    "new or malloc, or host memory; allocate it with cudaMalloc"
                )

    def _cannot(self, reasons: list[str]) -> str:
        reason = self._named(reasons[0]) if reasons else "nothing was recorded"
        return f"the launches of {self.kernel.name} cannot be captured: {reason}"

    def _named(self, reason: str) -> str:
        for position, parameter in enumerate(self.kernel.parameters):
            reason = reason.replace(f"@N{position}@", parameter.name)
        return reason

    def _workload(
        self, name: str, c: Configuration, callee: str, passed: tuple[Passed, ...], total: float
    ) -> Workload:
        folder = self.folder / name
        remove(folder)
        folder.mkdir(parents=True)
        arguments = tuple(p.argument for p in passed)
        gx, gy, gz, bx, by, bz = c.geometry
        places = self._launches.places(c.number)
        allocations = tuple(
            self._allocation(folder, index, stored, passed, follows=bool(places))
            for index, stored in enumerate(self._launches.allocations(c.number))
        )
        if places:
            files = [folder / a.before for a in allocations]
            found, tables = linked(self.program, self.kernel, callee, passed, places, files)
            allocations = tuple(
                _placed(a, place, found.get(a.index, ()), is_table=a.index in tables)
                for a, place in zip(allocations, places, strict=True)
            )
        return Workload(
            id=name,
            kernel=self.kernel.name,
            callee=callee,
            site=c.site,
            grid=Dim3(x=gx, y=gy, z=gz),
            block=Dim3(x=bx, y=by, z=bz),
            dynamic_smem_bytes=c.smem,
            arguments=arguments,
            allocations=allocations,
            globals=self._globals(folder, c.number, callee),
            launches=c.launches,
            time_share=min(1.0, c.seconds / total),
            first_launch=c.first_launch,
            l2_regime="warm" if c.follows_itself else "cold",
            folder=str(folder.absolute()),
        )

    def _allocation(
        self, folder: Path, index: int, stored: Stored, passed: tuple[Passed, ...], *, follows: bool
    ) -> Allocation:
        """`follows`: pointers in memory may lead to it."""
        pointing = [
            one for position, p in enumerate(passed) for one in self._pointing(position, p, index)
        ]
        if not (pointing or follows):
            raise Malformed("a before line of memory that no argument points into")
        only_read = all(one.to_const for one in pointing)
        role: Role = "in" if only_read and stored.before == stored.after else "inout"
        before, after = self._keep(folder, f"a{index}", stored)
        layout = _layout(pointing, stored.size_bytes)
        return Allocation(
            index=index,
            size_bytes=stored.size_bytes,
            element=next((one.element for one in pointing if one.element != "opaque"), "opaque"),
            role=role,
            before=before,
            after=after,
            fields=() if layout is None else number_fields(layout),
            structure_bytes=None if layout is None else layout.size_bytes,
            wide_structure_bytes=None if layout is None else layout.wide_size_bytes,
        )

    def _pointing(self, position: int, passed: Passed, allocation: int) -> Iterator[_Pointing]:
        """Each pointer of an argument into the allocation."""
        argument = passed.argument
        if isinstance(argument, PointerArgument) and argument.allocation == allocation:
            to_const = passed.to_const or self._is_const(position)
            layout = next(iter(passed.layouts), None)
            yield _Pointing(argument.element, to_const, argument.offset_bytes, layout)
        elif isinstance(argument, OpaqueArgument):
            for field, layout in zip(argument.pointers, passed.layouts, strict=True):
                if field.allocation == allocation:
                    yield _Pointing(field.element, field.is_const, field.offset_bytes, layout)

    def _is_const(self, position: int) -> bool:
        """As declared, where the compiler deduced a template and the type that was bound is not."""
        parameters = self.kernel.parameters
        return position < len(parameters) and parameters[position].is_const

    def _globals(self, folder: Path, number: str, callee: str) -> tuple[GlobalState, ...]:
        recorded = self._launches.variables(number)
        types = typed_variables(self.program, self.kernel, callee, [name for name, _ in recorded])
        states = []
        for position, (name, stored) in enumerate(recorded):
            before, after = self._keep(folder, f"g{position}", stored)
            states.append(
                GlobalState(
                    name=name,
                    size_bytes=stored.size_bytes,
                    before=before,
                    after=after,
                    **type_of(types[name], stored.size_bytes),
                )
            )
        return tuple(states)

    def _keep(self, folder: Path, stem: str, stored: Stored) -> tuple[str, str]:
        """Give contents their names in the workload's folder; equal contents share one file."""
        first = f"{stem}.before.bin"
        self._copy(stored.before, stored.size_bytes, folder / first)
        if stored.before == stored.after:
            return first, first
        self._copy(stored.after, stored.size_bytes, folder / f"{stem}.after.bin")
        return first, f"{stem}.after.bin"

    def _copy(self, blob: str, size_bytes: int, target: Path) -> None:
        """Only the first use copies what the program left; later ones are links to our copy."""
        known = self._copies.get(blob)
        if known is None:
            self._copied += size_bytes
            if self._copied > self.source.most_bytes:
                most = f"{self.source.most_bytes / 1024**3:.3g} GiB"
                raise Malformed(f"contents of more than {most}")
            copy_untrusted(self.source.blobs, blob, target, size_bytes, size_bytes)
            discard(self.source.blobs / blob)  # there may be no room for all of them twice
            self._copies[blob] = target
            return
        try:
            os.link(known, target)
        except OSError:
            shutil.copyfile(known, target)

    def _callee(self, c: Configuration, names: dict[int, str], passed: tuple[Passed, ...]) -> str:
        """The instance that ran: as the linker names it; where the compiler chose it, the only one
        of this launch, by clang, that takes such arguments; else deduced from these."""
        if not self.kernel.template_parameters:
            return self.kernel.qualified_name
        if c.function in names:
            if any(word in names[c.function] for word in _CLOSURES):
                raise InputError(self._of_closure(c))
            return self._instance(callee_of(names[c.function]))
        if self.source.executable is None:
            raise Malformed("a config line with a function that no symbol line names")
        possible = [
            one
            for one in launched_instances(self.program)
            if (one.file, one.start) == self._sites[c.site] and takes(one.parameters, passed)
        ]
        instances = {one.callee for one in possible}
        if len(instances) > 1:
            instances = {one.callee for one in possible if stands_in(one.within, c.within)}
        if len(instances) == 1:
            return self._instance(instances.pop())
        arguments = (p.argument for p in passed)
        elements = [
            a.element if isinstance(a, PointerArgument | ScalarArgument) else None
            for a in arguments
        ]
        deduced = deduce_instance(self.kernel, elements)
        if deduced is None:
            site = self._site(c)
            if any(map(has_closure, site.args)):
                raise InputError(self._of_closure(c))
            text = f"{site.file}:{site.line}: the template arguments of {self.kernel.name} cannot"
            raise InputError(f"{text} be told from its launch; write them between angle brackets")
        return deduced

    def _site(self, c: Configuration) -> LaunchSite:
        return next(one for one in self.program.launches if one.index == c.site)

    def _of_closure(self, c: Configuration) -> str:
        site = self._site(c)
        return (
            f"{site.file}:{site.line}: a template argument of {self.kernel.name} is the type of a "
            "lambda, which has no name; write a structure with `operator()` instead of it"
        )

    def _instance(self, callee: str) -> str:
        """The same, which is an instance of this kernel: the address of any function can be
        reported."""
        if plain_name(callee) != self.kernel.plain_name or not callee.isprintable():
            raise Malformed(f"a config line with a function that is not {self.kernel.name}")
        return callee


def _placed(
    a: Allocation, place: Place, pointers: Sequence[Linked], *, is_table: bool
) -> Allocation:
    """The same of a launch that follows pointers in memory."""
    update: dict[str, object] = {"address": place.address, "holds_pointers": place.holds_pointers}
    unchanged = a.before == a.after
    if pointers:
        elements = {one.element for one in pointers}
        known = a.element if a.element != "opaque" else elements.pop()
        update["element"] = known if elements <= {known} else "opaque"
        update["name"] = pointers[0].name
        if not all(one.is_const for one in pointers):
            update["role"] = "inout"
    if place.holds_pointers:
        size = POINTER_BYTES if is_table else None  # which is no wider where numbers are
        update |= {
            "element": "opaque", "fields": (), "structure_bytes": size,
            "wide_structure_bytes": size, "role": "in" if unchanged else "inout",
        }  # fmt: skip
    return a.model_copy(update=update)


def _layout(pointing: Sequence[_Pointing], size_bytes: int) -> Layout | None:
    """Of the structures that an allocation holds; None where it does not hold these alone, or where
    the type does not tell all that is in them."""
    layout = pointing[0].layout if pointing else None
    if layout is None or not layout.fields or size_bytes < layout.size_bytes:
        return None
    whole = all(one.offset_bytes % layout.size_bytes == 0 for one in pointing)
    return layout if whole and all(one.layout == layout for one in pointing) else None


def _fixed(passed: tuple[Passed, ...], counters: frozenset[int]) -> tuple[object, ...]:
    """What decides which code runs on how much: arguments without addresses, floating values and
    counters, whose positions these are."""

    def of(position: int, a: Argument) -> object:
        if isinstance(a, ScalarArgument):
            return a.element if a.element in FLOATING or position in counters else a.value
        return a.raw_hex if isinstance(a, OpaqueArgument) else a.kind

    return tuple(of(position, p.argument) for position, p in enumerate(passed))
