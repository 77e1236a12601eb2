"""A GPU that is not there: the runner's driver over the `cpu` executor's units.

For tests: every part of the `cuda` path but NVIDIA's own driver runs for real on a machine
without a GPU. What differs from a device:

- Times are virtual: launches alone move the clock, by what their unit reports or a script says
  (`clock.py`). The host's clock sees more: a process for every launch, 3 ms and 1.3 ms for
  each MiB that its pointers reach (2 cores, 2026-11-20).
- A launch is waited for in `launch` itself. A kernel that never ends therefore never returns from
  there, and ends with this process. A deadlock is seen and becomes CUDA_ERROR_LAUNCH_TIMEOUT.
- Pointers are followed where they are parameters. Inside of a structure, or into a device variable,
  they are refused (CUDA_ERROR_NOT_SUPPORTED); inside of device memory they fault when followed.
- An access up to 1 MiB outside of an allocation faults (a GPU lets one into a neighbour pass) and
  names the author's line; one farther off faults where the child happens to have nothing.
- An integer division by zero ends the kernel; a GPU goes on.
- Every launch has other addresses, whatever memory it is given: a result kept by address never
  shows.
- A `static` variable inside of a function of the author's program starts anew at every launch.
- There is no L2, no profiler and no other user of the device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.devices import DEVICES, Device
from cudaops.cuda.occupancy import occupancy
from cudaops.domain.base import Dim3
from cudaops.executors.cuda.protocol import DeviceFacts, Launchable
from cudaops.executors.cuda.runner.driver import DriverError, DriverMissing
from tests.standin.clock import Clock, script_of
from tests.standin.image import (
    Image,
    KernelImage,
    VariableImage,
    read_image,
)
from tests.standin.launch import Child, understand
from tests.standin.memory import MEMORY_AT, VARIABLES_AT, Memory, MemoryFile

NAME = "cudaops stand-in (no GPU)"
MODEL = DEVICES["A10"]
"""The device whose limits the stand-in has."""
GRID_MOST = (2**31 - 1, 65535, 65535)
BLOCK_MOST = (1024, 1024, 64)
"""Source: CUDA C++ Programming Guide, technical specifications per compute capability."""


class ModuleHandle:
    """A loaded module: its image, and its variables' memory."""

    def __init__(self, image: Image, variables: Mapping[str, tuple[VariableImage, int]]) -> None:
        self.image = image
        self.variables = variables
        """Name in the unit to the variable and its address."""
        self.dynamic: dict[int, int] = {}
        """Entry to the dynamic shared memory that its launches may ask for, where opted in."""
        self.loaded = True


class FunctionHandle(NamedTuple):
    """A kernel of a loaded module."""

    module: ModuleHandle
    kernel: KernelImage
    launchable: Launchable


class EventHandle:
    """A moment of the stand-in's clock."""

    def __init__(self) -> None:
        self.at_us: float | None = None


class StandInDriver:
    """Implements `Driver` with the limits of `MODEL`.

    A launch is one child process that is waited for; what went wrong in it shows at the next
    `synchronize`, `read`, `write`, `free` or `elapsed_us`, and from then on every call fails with
    the same error, as on a GPU whose context is lost.
    """

    def __init__(self, device: int = 0, environment: Mapping[str, str] = os.environ) -> None:
        """`device` is the ordinal; `environment` may name a script: see `clock.Script`.

        Raises DriverMissing for any device but the first, and for a script that cannot be read.
        """
        if device != 0:
            raise DriverMissing(f"there is no device {device}", "the stand-in is device 0")
        self.facts = _facts(MODEL)
        self._memory = Memory(MEMORY_AT, self.facts.memory_bytes)
        self._variables = Memory(VARIABLES_AT, self.facts.memory_bytes)
        self._clock = Clock(script_of(environment), MODEL.l2_bytes)
        self._child = Child()
        self._pending: DriverError | None = None
        self._lost: DriverError | None = None

    def load(self, image: Path) -> ModuleHandle:
        """Load what `StandInPlatform` built; variables get their initial contents."""
        self._usable("load")
        read = read_image(image)
        variables = {}
        for one in read.variables:
            address = self._variables.allocate(one.size_bytes)
            try:
                contents = (image.parent / one.initial).read_bytes()
            except OSError as problem:
                raise DriverError("CUDA_ERROR_INVALID_IMAGE", "load", str(problem)) from problem
            self._variables.span("load", address, len(contents))[0].write(0, contents)
            variables[one.name] = (one, address)
        return ModuleHandle(read, variables)

    def unload(self, module: ModuleHandle) -> None:
        """Forget a module and its variables."""
        self._usable("unload")
        self._loaded("unload", module)
        module.loaded = False
        for _, address in module.variables.values():
            self._variables.free(address)

    def function(self, module: ModuleHandle, kernel: Launchable) -> FunctionHandle:
        """The kernel of this entry and symbol."""
        self._usable("function")
        self._loaded("function", module)
        for one in module.image.kernels:
            if (one.entry, one.symbol) == (kernel.entry, kernel.symbol):
                return FunctionHandle(module, one, kernel)
        raise DriverError("CUDA_ERROR_NOT_FOUND", "function", kernel.symbol)

    def parameter_sizes(self, function: FunctionHandle) -> tuple[int, ...]:
        """Bytes of each parameter, as g++ lays it out."""
        self._usable("parameter_sizes")
        return tuple(p.size_bytes for p in function.kernel.parameters)

    def allow_dynamic_shared(self, function: FunctionHandle, size_bytes: int) -> None:
        """Up to the device's opt-in limit less the kernel's static shared memory."""
        self._usable("allow_dynamic_shared")
        static = function.kernel.static_smem_bytes or 0
        if not 0 <= size_bytes <= MODEL.shared_bytes_per_block_optin - static:
            text = f"{size_bytes} bytes of dynamic shared memory beside {static} static ones"
            raise DriverError("CUDA_ERROR_INVALID_VALUE", "allow_dynamic_shared", text)
        function.module.dynamic[function.kernel.entry] = size_bytes

    def variable(self, module: ModuleHandle, symbol: str) -> tuple[int, int]:
        """Address and size in bytes of a variable of the program."""
        self._usable("variable")
        self._loaded("variable", module)
        for one, address in module.variables.values():
            if one.symbol == symbol:
                return address, one.size_bytes
        raise DriverError("CUDA_ERROR_NOT_FOUND", "variable", symbol)

    def allocate(self, size_bytes: int) -> int:
        """Memory aligned to 256 bytes, full of 0xCD."""
        self._usable("allocate")
        return self._memory.allocate(size_bytes)

    def free(self, address: int) -> None:
        """Give memory back."""
        self._wait("free")
        self._memory.free(address)

    def host_memory(self, size_bytes: int) -> memoryview:
        """Any memory: there is no device to copy from it."""
        return memoryview(bytearray(size_bytes))

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Copy from the host."""
        self._wait("write")
        size = memoryview(data).nbytes
        file, offset = self._of(address).span("write", address, size)
        file.write(offset, data)
        self._clock.wrote(size)

    def read(self, address: int, size_bytes: int) -> bytes:
        """Copy to the host."""
        self._wait("read")
        file, offset = self._of(address).span("read", address, size_bytes)
        return file.read(offset, size_bytes)

    def read_into(self, address: int, target: memoryview) -> None:
        """The same into memory that is there."""
        found = self.read(address, len(target))
        target[: len(found)] = found

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        """Set every byte."""
        self._usable("fill")
        file, offset = self._of(address).span("fill", address, size_bytes)
        if self._pending is None:
            file.fill(offset, byte, size_bytes)
            self._clock.wrote(size_bytes)

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Copy on the device."""
        self._usable("copy")
        into, at = self._of(target).span("copy", target, size_bytes)
        out, start = self._of(source).span("copy", source, size_bytes)
        if self._pending is None:
            into.take(at, out, start, size_bytes)
            self._clock.wrote(size_bytes)

    def launch(
        self,
        function: FunctionHandle,
        grid: Dim3,
        block: Dim3,
        dynamic_smem_bytes: int,
        parameters: Sequence[bytes],
        together: bool = False,
    ) -> None:
        """Run the kernel to its end; its errors show later.

        Raises DriverError at once for what a driver refuses to launch.
        """
        self._usable("launch")
        self._loaded("launch", function.module)
        self._refuse(function, grid, block, dynamic_smem_bytes)
        ready = understand(function.kernel, parameters, self._memory, self._variables)
        if self._pending is not None:
            return  # behind a kernel that failed nothing runs any more
        seconds = None
        if self._clock.executes(function.launchable):
            variables = self._files(function.module)
            try:
                seconds = self._child.run(
                    function.module.image, ready, grid, block, dynamic_smem_bytes, variables,
                    together,
                )  # fmt: skip
            except DriverError as problem:
                if problem.name == "CUDA_ERROR_INVALID_VALUE":
                    raise
                self._pending = problem
                return
        self._clock.launched(function.launchable, None if seconds is None else 1e6 * seconds)

    def empty_kernel(self) -> None:
        """There is none: launches take what their units report."""

    def fill_shared(self, byte: int) -> bool:
        """Every launch is a process of its own, which finds nothing of another's."""
        return False

    def graph(self, work: Callable[[], None]) -> None:
        """There are no graphs."""

    def launch_graph(self, graph: None) -> None:
        """There are no graphs."""
        raise DriverError("CUDA_ERROR_INVALID_HANDLE", "launch_graph", "there are no graphs")

    def event(self) -> EventHandle:
        """An event that has not happened."""
        self._usable("event")
        return EventHandle()

    def record(self, event: EventHandle) -> None:
        """Let the event happen now."""
        self._usable("record")
        event.at_us = self._clock.now_us

    def elapsed_us(self, start: EventHandle, end: EventHandle) -> float:
        """Virtual time between two events."""
        self._wait("elapsed_us")
        if start.at_us is None or end.at_us is None:
            text = "an event that was not recorded"
            raise DriverError("CUDA_ERROR_INVALID_HANDLE", "elapsed_us", text)
        return end.at_us - start.at_us

    def synchronize(self) -> None:
        """Wait for everything."""
        self._wait("synchronize")

    def reset_persisting_l2(self) -> None:
        """There is no L2."""
        self._usable("reset_persisting_l2")

    def profiler_range(self, *, start: bool) -> None:
        """There is no profiler to tell."""
        self._usable("profiler_range")

    def sm_clock_mhz(self) -> float | None:
        """What the script says."""
        return self._clock.sm_clock_mhz()

    def temperature_c(self) -> float | None:
        """What the script says."""
        return self._clock.temperature_c()

    def free_bytes(self) -> int:
        """What can still be allocated."""
        self._usable("free_bytes")
        return self._memory.free_bytes

    def close(self) -> None:
        """Give everything back."""
        self._memory.close()
        self._variables.close()
        self._child.close()

    def _usable(self, call: str) -> None:
        """Nothing works any more in a lost context."""
        if self._lost is not None:
            raise DriverError(self._lost.name, call, self._lost.message)

    def _wait(self, call: str) -> None:
        """Let everything before end, and what went wrong in it show."""
        self._usable(call)
        self._clock.wait()
        if self._pending is not None:
            self._lost, self._pending = self._pending, None
            self._usable(call)

    def _loaded(self, call: str, module: ModuleHandle) -> None:
        if not module.loaded:
            raise DriverError("CUDA_ERROR_INVALID_HANDLE", call, "the module was unloaded")

    def _of(self, address: int) -> Memory:
        return self._memory if self._variables.around(address) is None else self._variables

    def _files(self, module: ModuleHandle) -> dict[str, MemoryFile]:
        found = {}
        for one, address in module.variables.values():
            found[one.name], _ = self._variables.span("launch", address, one.size_bytes)
        return found

    def _refuse(self, function: FunctionHandle, grid: Dim3, block: Dim3, smem: int) -> None:
        """What a driver checks before it launches."""
        kernel, device = function.kernel, MODEL
        shape = f"{kernel.callee}: grid {grid}, block {block}, {smem} bytes of shared memory"
        fits = _within(grid, GRID_MOST) and _within(block, BLOCK_MOST)
        if not fits or block.volume > device.max_threads_per_block:
            raise DriverError("CUDA_ERROR_INVALID_VALUE", "launch", shape)
        static = kernel.static_smem_bytes or 0
        usual = device.shared_bytes_per_block - static
        if not 0 <= smem <= function.module.dynamic.get(kernel.entry, usual):
            raise DriverError("CUDA_ERROR_INVALID_VALUE", "launch", shape)
        registers = min(kernel.registers or 0, device.max_registers_per_thread)
        if occupancy(device, block.volume, registers, static + smem).blocks_per_sm == 0:
            text = f"{shape}, {registers} registers a thread"
            raise DriverError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "launch", text)


def _within(extent: Dim3, most: tuple[int, int, int]) -> bool:
    sides = (extent.x, extent.y, extent.z)
    return all(1 <= side <= limit for side, limit in zip(sides, most, strict=True))


def _facts(device: Device) -> DeviceFacts:
    return DeviceFacts(
        real=False,
        name=NAME,
        uuid="",
        compute_capability=device.compute_capability,
        sm_count=device.sm_count,
        memory_bytes=int(device.memory_gb * 1e9),
        l2_bytes=device.l2_bytes,
        shared_bytes_per_block_optin=device.shared_bytes_per_block_optin,
        max_sm_clock_mhz=device.sm_clock_mhz,
        memory_clock_mhz=None,
        memory_bus_bits=None,
        driver_version="",
        cuda_version="",
    )
