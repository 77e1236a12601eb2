"""One launch on the stand-in GPU: a child process of the `cpu` executor's unit."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import MisbehaviourKind
from cudaops.errors import EnvironmentFailure
from cudaops.executors.cpu.report import ReportNames, find_fault, report_of
from cudaops.executors.cuda.runner.driver import DriverError
from cudaops.executors.process import run_bounded
from tests.standin.image import Image, KernelImage, Parameter, registration
from tests.standin.memory import Allocation, Memory, MemoryFile

ERRORS: dict[MisbehaviourKind, str] = {
    "out_of_bounds": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "guard_overwritten": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "deadlock": "CUDA_ERROR_LAUNCH_TIMEOUT",
    "timeout": "CUDA_ERROR_LAUNCH_TIMEOUT",
    "launch_refused": "CUDA_ERROR_INVALID_VALUE",
}
"""What a GPU's driver calls these faults; any other is CUDA_ERROR_LAUNCH_FAILED."""
_ASSERTION = "assertion `"
_INTO_NOWHERE = 1 << 19
"""Offset from a one-byte allocation that lies amid the inaccessible pages the `cpu` executor puts
behind each (1 MiB): where a pointer into no live memory is sent."""


class Ready(NamedTuple):
    """A launch whose parameters were understood."""

    kernel: KernelImage
    values: tuple[str, ...]
    """`value` lines of the unit's specification."""
    memory: tuple[Allocation, ...]
    """What the pointers reach; numbered in this order."""
    strays: tuple[int, ...]
    """Addresses in no live allocation; numbered after the memory."""


def understand(
    kernel: KernelImage, parameters: Sequence[bytes], memory: Memory, variables: Memory
) -> Ready:
    """Values and the memory they point into.

    Raises DriverError: CUDA_ERROR_INVALID_VALUE for a wrong number or size of parameters,
    CUDA_ERROR_NOT_SUPPORTED for pointers that cannot be followed.
    """
    sizes = [p.size_bytes for p in kernel.parameters]
    if [len(raw) for raw in parameters] != sizes:
        text = f"{kernel.callee} takes {sizes} bytes, given {[len(raw) for raw in parameters]}"
        raise DriverError("CUDA_ERROR_INVALID_VALUE", "launch", text)
    reached: dict[int, Allocation] = {}
    pointers = {}
    for index, (parameter, raw) in enumerate(zip(kernel.parameters, parameters, strict=True)):
        if parameter.kind == "pointer" and (address := int.from_bytes(raw, "little")):
            _refuse_variable(kernel, index, address, variables)
            pointers[index] = address
            if found := memory.around(address):
                reached[found.begin] = found
        elif parameter.kind == "bytes":
            for _, address in _words(raw):
                _refuse_variable(kernel, index, address, variables)
                if found := memory.around(address):
                    reached[found.begin] = found
    numbers = {begin: number for number, begin in enumerate(reached)}
    strays = [a for a in dict.fromkeys(pointers.values()) if memory.around(a) is None]
    values = []
    for index, (parameter, raw) in enumerate(zip(kernel.parameters, parameters, strict=True)):
        if index not in pointers:
            placed = [
                f" {at} buffer {numbers[found.begin]} {address - found.begin}"
                for at, address in _words(raw)
                if parameter.kind == "bytes" and (found := memory.around(address))
            ]
            values.append(_value(parameter, raw) + "".join(placed))
        elif found := memory.around(pointers[index]):
            values.append(f"buffer {numbers[found.begin]} {pointers[index] - found.begin}")
        else:
            number = len(reached) + strays.index(pointers[index])
            values.append(f"buffer {number} {_INTO_NOWHERE}")
    return Ready(kernel, tuple(values), tuple(reached.values()), tuple(strays))


def _value(parameter: Parameter, raw: bytes) -> str:
    if parameter.kind == "pointer":
        return "null"
    if parameter.kind == "integer":
        return f"int {int.from_bytes(raw, 'little', signed=True)}"
    if parameter.kind == "floating":
        return f"float {struct.unpack('<f' if len(raw) == 4 else '<d', raw)[0]!r}"
    return f"raw {raw.hex()}"


def _refuse_variable(kernel: KernelImage, index: int, address: int, variables: Memory) -> None:
    if variables.around(address):
        text = f"{_named(kernel, index)} points into a device variable"
        raise DriverError("CUDA_ERROR_NOT_SUPPORTED", "launch", text)


def _words(raw: bytes) -> Iterator[tuple[int, int]]:
    """What may be an address in a structure, with where it stands in it."""
    for number, (word,) in enumerate(struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8])):
        yield 8 * number, word


def _named(kernel: KernelImage, index: int) -> str:
    name = kernel.parameters[index].name
    return f"{kernel.callee}: parameter {index + 1}" + (f" ({name})" if name else "")


class Child:
    """Runs launches of one device, each in a process of its own."""

    def __init__(self) -> None:
        self._specification, self._report = MemoryFile(), MemoryFile()

    def run(
        self,
        image: Image,
        ready: Ready,
        grid: Dim3,
        block: Dim3,
        dynamic_smem_bytes: int,
        variables: Mapping[str, MemoryFile],
        together: bool,
    ) -> float:
        """Seconds the kernel took, by its unit. Memory is changed in place. `together`: its blocks
        may wait for each other.

        Raises DriverError for what the kernel did wrong. There is no limit of time: a kernel that
        never ends ends with this process.
        """
        shape = f"{grid.x} {grid.y} {grid.z} {block.x} {block.y} {block.z} {dynamic_smem_bytes}"
        lines = [f"shared {dynamic_smem_bytes}"]
        for number, one in enumerate(ready.memory):
            lines.append(f"alloc {number} {one.size} {one.file.contents()}")
            lines.append(f"dump {number} {one.file.path}")
        for number in range(len(ready.strays)):
            lines.append(f"alloc {len(ready.memory) + number} 1 fill 0")
        for name, file in variables.items():
            lines += [f"global {name} {file.contents()}", f"gdump {name} {file.path}"]
        lines.append(f"launch {ready.kernel.entry} {shape}")
        lines += ["together"] if together else []
        lines += [f"value {value}" for value in ready.values]
        for file in (self._specification, self._report):
            file.empty()
        self._specification.write(0, "".join(f"{line}\n" for line in lines).encode())
        seconds = self._run(image, ready)
        for file in (*(one.file for one in ready.memory), *variables.values()):
            file.written()
        return seconds

    def _run(self, image: Image, ready: Ready) -> float:
        env = {
            "CUDAOPS_REPORT": self._report.path,
            "CUDAOPS_WORKERS": str(len(os.sched_getaffinity(0))),
            "CUDAOPS_STANDIN_RUNNER": str(os.getpid()),
            **registration(image),
        }
        executable = Path(image.executable)
        command = [str(executable), self._specification.path]
        try:
            # Confined as the runner is, whose child it remains.
            done = run_bounded(
                command,
                cwd=executable.parent,
                timeout_s=math.inf,
                env=env,
                tool="kernels",
            )
            with os.fdopen(os.dup(self._report.fd), "rb") as file:
                file.seek(0)
                report = report_of(file)
            fault = find_fault(report, done, executable, _names(image, ready), math.inf)
        except EnvironmentFailure as problem:
            raise DriverError("CUDA_ERROR_UNKNOWN", "launch", str(problem)) from problem
        if done.stdout:  # as a driver does with what kernels print
            os.write(1, done.stdout.encode())
        if fault is not None:
            name = ERRORS.get(fault.what, "CUDA_ERROR_LAUNCH_FAILED")
            name = "CUDA_ERROR_ASSERT" if _ASSERTION in fault.message else name
            raise DriverError(name, "launch", fault.placed)
        ended = report.all("ok")
        if not ended:
            text = f"{ready.kernel.callee} ended its process with exit code {done.exit_code}"
            raise DriverError("CUDA_ERROR_LAUNCH_FAILED", "launch", text)
        try:
            return float(ended[0][0])
        except (IndexError, ValueError) as problem:
            text = f"{ready.kernel.callee} wrote into the report of its launch"
            raise DriverError("CUDA_ERROR_LAUNCH_FAILED", "launch", text) from problem

    def close(self) -> None:
        """Give the files back."""
        self._specification.close()
        self._report.close()


def _names(image: Image, ready: Ready) -> ReportNames:
    """What the author calls the memory that a fault's message numbers."""
    kernel = ready.kernel
    names = tuple(p.name or f"#{i + 1}" for i, p in enumerate(kernel.parameters))
    allocations: dict[int, str] = {}
    for value, name in zip(ready.values, names, strict=True):
        if value.startswith("buffer "):
            allocations.setdefault(int(value.split()[1]), name)
    for number, address in enumerate(ready.strays):
        allocations[len(ready.memory) + number] = f"0x{address:x}, which is not allocated"
    # A guard is found overwritten after the kernel, when the unit names none.
    return ReportNames(image.author_files, {kernel.callee: names, "": names}, allocations)
