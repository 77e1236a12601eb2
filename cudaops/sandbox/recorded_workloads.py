"""Workloads from the report of a whole program that ran with the recorder on."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple, cast

from cudaops.domain.base import Dim3
from cudaops.domain.execution import LaunchCount
from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import (
    Allocation,
    Argument,
    Element,
    GlobalState,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    Role,
    ScalarArgument,
    Workload,
)
from cudaops.errors import InputError
from cudaops.program.reroute import deduce_instance
from cudaops.sandbox.executors.cpu_report import Report
from cudaops.sandbox.executors.cpu_symbols import callee_of, function_names

TIME_COVERED = 0.9
MAX_WORKLOADS = 5
"""Design D2: the most expensive configurations covering 90 % of the kernel's time, at most 5."""

_FORMATS: dict[str, str] = {
    "f32": "<f", "f64": "<d", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i",
    "u32": "<I", "i64": "<q", "u64": "<Q", "bool": "<?", "f16": "<e",
}  # fmt: skip


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
    followed: int = 0
    """Launches right after one of the same configuration on the same allocations."""

    @property
    def follows_itself(self) -> bool:
        """Whether most of its launches found their buffers as the same launch had left them."""
        return 2 * self.followed > self.launches


def launch_counts(report: Report) -> tuple[LaunchCount, ...]:
    """How often each kernel was launched, the most expensive first."""
    counts = [
        LaunchCount(kernel=k, launches=int(n), skipped=int(s), seconds=float(t))
        for k, n, s, t in report.all("count")
    ]
    return tuple(sorted(counts, key=lambda c: -c.seconds))


def recorded(report: Report, kernel: str) -> list[Configuration]:
    """Configurations of a kernel whose contents were kept, the most expensive first."""
    usage = {u[0]: u for u in report.all("usage")}
    found = []
    for number, name, site, function, *rest in report.all("config"):
        used = usage.get(number)
        if name == kernel and used is not None and used[3] == "1":
            sizes = tuple(int(r) for r in rest)
            found.append(
                Configuration(
                    number,
                    int(site),
                    int(function, 16),
                    sizes[:6],
                    sizes[6],
                    int(used[1]),
                    float(used[2]),
                    *(int(u) for u in used[4:6]),
                )
            )
    return sorted(found, key=lambda c: -c.seconds)


def host_pointer(report: Report, number: str) -> int | None:
    """Position of a parameter that was given a host pointer, if any."""
    return next((int(h[1]) for h in report.all("host") if h[0] == number), None)


class WorkloadReader:
    """Turns recorded configurations of one kernel into Workloads under a folder."""

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        report: Report,
        executable: Path,
        blobs: Path,
        folder: Path,
    ) -> None:
        self.program = program
        self.kernel = kernel
        self.executable = executable
        self.blobs = blobs
        self.folder = folder
        self.report = report
        self._lines: dict[str, dict[str, list[tuple[str, ...]]]] = {
            verb: defaultdict(list)
            for verb in ("arg", "before", "after", "gbefore", "gafter", "limit")
        }
        for verb, by_number in self._lines.items():
            for line in report.all(verb):
                by_number[line[0]].append(line[1:])

    def read(
        self, configurations: list[Configuration], total_seconds: float
    ) -> tuple[Workload, ...]:
        """Those that cover enough time. Raises InputError where none can be captured."""
        usable = [c for c in configurations if not self._lines["limit"][c.number]]
        if not usable:
            raise InputError(self._cannot(configurations))
        names = function_names(self.executable, {c.function for c in usable if c.function})
        total = max(total_seconds, 1e-12)
        covered = 0.0
        workloads: list[Workload] = []
        for configuration in usable[:MAX_WORKLOADS]:
            workloads.append(self._workload(f"w{len(workloads)}", configuration, names, total))
            covered += configuration.seconds
            if covered >= TIME_COVERED * total:
                break
        return tuple(workloads)

    def _cannot(self, configurations: list[Configuration]) -> str:
        reason = (
            self._lines["limit"][configurations[0].number][0][0]
            if configurations
            else "nothing was recorded"
        )
        for position, parameter in enumerate(self.kernel.parameters):
            reason = reason.replace(f"@N{position}@", parameter.name)
        text = f"the launches of {self.kernel.name} cannot be captured: {reason}"
        return f"{text}; choose another kernel with --kernel"

    def _workload(
        self, name: str, c: Configuration, names: dict[int, str], total: float
    ) -> Workload:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        arguments = tuple(self._argument(line) for line in self._lines["arg"][c.number])
        after = {line[0]: line[1] for line in self._lines["after"][c.number]}
        allocations = tuple(
            self._allocation(folder, int(k), int(size), blob, after[k], c.number)
            for k, size, blob in self._lines["before"][c.number]
        )
        gx, gy, gz, bx, by, bz = c.geometry
        return Workload(
            id=name,
            kernel=self.kernel.name,
            callee=self._callee(c, names, arguments),
            site=c.site,
            grid=Dim3(x=gx, y=gy, z=gz),
            block=Dim3(x=bx, y=by, z=bz),
            dynamic_smem_bytes=c.smem,
            arguments=arguments,
            allocations=allocations,
            globals=self._globals(folder, c.number),
            launches=c.launches,
            time_share=min(1.0, c.seconds / total),
            first_launch=c.first_launch,
            l2_regime="warm" if c.follows_itself else "cold",
            folder=str(folder.absolute()),
        )

    def _argument(self, line: tuple[str, ...]) -> Argument:
        position, kind, *rest = line
        name = self._parameter(int(position))
        if kind == "null":
            return NullArgument(name=name)
        element = cast(Element, rest[0])
        if kind == "pointer":
            return PointerArgument(
                name=name, element=element, allocation=int(rest[2]), offset_bytes=int(rest[3])
            )
        if kind == "scalar" and element in _FORMATS:
            value = struct.unpack(_FORMATS[element], bytes.fromhex(rest[1]))[0]
            number = int(value) if element == "bool" else value
            return ScalarArgument(name=name, element=element, value=number)
        return OpaqueArgument(name=name, raw_hex=rest[1])

    def _parameter(self, position: int) -> str:
        parameters = self.kernel.parameters
        return parameters[position].name if position < len(parameters) else f"argument{position}"

    def _allocation(
        self, folder: Path, index: int, size: int, before: str, after: str, number: str
    ) -> Allocation:
        pointing = [
            line
            for line in self._lines["arg"][number]
            if line[1] == "pointer" and int(line[4]) == index
        ]
        only_read = all(self._points_to_const(line) for line in pointing) and before == after
        role: Role = "in" if only_read else "inout"
        names = self._keep(folder, f"a{index}", before, after)
        return Allocation(
            index=index,
            size_bytes=size,
            element=cast(Element, pointing[0][2]),
            role=role,
            before=names[0],
            after=names[1],
        )

    def _points_to_const(self, line: tuple[str, ...]) -> bool:
        """By the type that was bound, or as declared where the compiler deduced a template."""
        position = int(line[0])
        declared = (
            position < len(self.kernel.parameters) and self.kernel.parameters[position].is_const
        )
        return line[3] == "1" or declared

    def _globals(self, folder: Path, number: str) -> tuple[GlobalState, ...]:
        after = {line[0]: line[1] for line in self._lines["gafter"][number]}
        states = []
        for position, (name, size, blob) in enumerate(sorted(self._lines["gbefore"][number])):
            names = self._keep(folder, f"g{position}", blob, after[name])
            states.append(
                GlobalState(name=name, size_bytes=int(size), before=names[0], after=names[1])
            )
        return tuple(states)

    def _keep(self, folder: Path, stem: str, before: str, after: str) -> tuple[str, str]:
        """Give contents their names in the workload's folder; equal contents share one file."""
        first = f"{stem}.before.bin"
        _link(self.blobs / before, folder / first)
        if before == after:
            return first, first
        _link(self.blobs / after, folder / f"{stem}.after.bin")
        return first, f"{stem}.after.bin"

    def _callee(
        self, c: Configuration, names: dict[int, str], arguments: tuple[Argument, ...]
    ) -> str:
        """The instance that ran: as the linker names it, else as written, else deduced."""
        if not self.kernel.template_parameters:
            return self.kernel.qualified_name
        if c.function in names:
            return callee_of(names[c.function])
        elements = [
            a.element if isinstance(a, PointerArgument | ScalarArgument) else None
            for a in arguments
        ]
        deduced = deduce_instance(self.kernel, elements)
        if deduced is None:
            text = f"the template arguments of {self.kernel.name} cannot be told from its launch"
            raise InputError(f"{text}; write them between angle brackets")
        return deduced


def _link(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
