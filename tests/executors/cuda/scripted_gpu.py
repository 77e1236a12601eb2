"""A `Driver` over bytearrays whose kernels are Python functions and whose clock is scripted.

Time passes only where the script says so: a kernel takes what `durations` gives for its launch, a
fill or copy `memory_us`, the host nothing. So every number a test expects can be written down.
Errors of a kernel show where a GPU shows them, at the next wait, and stay (a sticky context).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudaops.domain.base import Dim3
from cudaops.executors.cuda.protocol import DeviceFacts, Launchable
from cudaops.executors.cuda.runner.driver import DriverError

BROKEN = "CUDAOPS_TEST_BROKEN_GPU"
L2_BYTES = 1 << 16
OPTIN_BYTES = 100_000

FACTS = DeviceFacts(
    real=True, name="Scripted", uuid=f"GPU-scripted-{os.getpid()}", compute_capability=(9, 0),
    sm_count=4, memory_bytes=1 << 24, l2_bytes=L2_BYTES, shared_bytes_per_block_optin=OPTIN_BYTES,
    max_sm_clock_mhz=1000.0, memory_clock_mhz=1000.0, memory_bus_bits=64, driver_version="1.2.3",
    cuda_version="13.0",
)  # fmt: skip


class Kernel(NamedTuple):
    """What a symbol stands for."""

    types: tuple[str, ...]
    sizes: tuple[int, ...]
    body: Callable[[ScriptedGpu, list[int]], None]
    """Gets its parameters as integers."""


class Event:
    """A moment of the scripted clock."""

    at_us = 0.0


class ScriptedGpu:
    """Implements `Driver`. `log` holds every call that a test may ask about, in order."""

    def __init__(self, **kernels: Kernel) -> None:
        self.facts = FACTS
        self.kernels = {**KERNELS, **kernels}
        self.memory: dict[int, bytearray] = {}
        self.now_us = 0.0
        self.memory_us = 1.0
        self.pair_us = 1.5
        """What an event pair with nothing between shows."""
        self.durations: dict[str, Callable[[int], float]] = {}
        """Symbol to the microseconds of its launch of this number, from 0; else 10."""
        self.counts: dict[str, int] = {}
        self.log: list[tuple[Any, ...]] = []
        self.pending: str | None = None
        self.variables: dict[str, int] = {}
        self.room = FACTS.memory_bytes
        self.knows_sizes = True
        self.fills_shared = True
        self.shared_byte = 0x5A
        """What every kernel finds in shared memory."""
        self.gap_us: float | None = None
        """Of each launch, beside its kernel's time; None: there are no graphs and no such gap."""
        self.node_gap_us = 0.0
        """Of each launch in a graph."""
        self.recording: list[tuple[Any, ...]] | None = None
        self.host_at_us = 0.0
        self._next = 0x7000_0000_0000

    def clock(self) -> float:
        """Seconds of the host's clock: where the GPU was last waited for."""
        return self.host_at_us * 1e-6

    def load(self, image: Path) -> str:
        text = image.read_text()
        if text == "other architecture":
            raise DriverError("CUDA_ERROR_NO_BINARY_FOR_GPU", "load")
        for line in text.splitlines():
            if line.startswith("variable "):
                _, name, contents = line.split()
                self.variables[name] = self.allocate(len(contents) // 2)
                self.memory[self.variables[name]][:] = bytes.fromhex(contents)
        return str(image)

    def unload(self, module: str) -> None:
        self.log.append(("unload", module))
        for address in self.variables.values():
            self.free(address)
        self.variables.clear()

    def function(self, module: str, kernel: Launchable) -> str:
        if kernel.symbol not in self.kernels:
            raise DriverError("CUDA_ERROR_NOT_FOUND", "function")
        return kernel.symbol

    def parameter_sizes(self, function: str) -> tuple[int, ...]:
        if not self.knows_sizes:
            raise DriverError("CUDA_ERROR_NOT_SUPPORTED", "parameter_sizes")
        return self.kernels[function].sizes

    def allow_dynamic_shared(self, function: str, size_bytes: int) -> None:
        self.log.append(("allow", function, size_bytes))

    def variable(self, module: str, symbol: str) -> tuple[int, int]:
        if symbol not in self.variables:
            raise DriverError("CUDA_ERROR_NOT_FOUND", "variable")
        address = self.variables[symbol]
        return address, len(self.memory[address])

    def allocate(self, size_bytes: int) -> int:
        if sum(len(m) for m in self.memory.values()) + size_bytes > self.room:
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "allocate")
        address = self._next
        self._next += (size_bytes // 256 + 2) * 256
        self.memory[address] = bytearray(size_bytes)
        return address

    def free(self, address: int) -> None:
        self._check()
        del self.memory[address]

    def host_memory(self, size_bytes: int) -> memoryview:
        return memoryview(bytearray(size_bytes))

    def write(self, address: int, data: bytes | memoryview) -> None:
        place, offset = self._at(address)
        place[offset : offset + len(data)] = data

    def read(self, address: int, size_bytes: int) -> bytes:
        self.synchronize()
        place, offset = self._at(address)
        return bytes(place[offset : offset + size_bytes])

    def read_into(self, address: int, target: memoryview) -> None:
        target[:] = self.read(address, len(target))

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        self.log.append(("fill", address, size_bytes))
        place, offset = self._at(address)
        assert offset + size_bytes <= len(place)
        place[offset : offset + size_bytes] = bytes([byte]) * size_bytes
        self.now_us += self.memory_us

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        self.log.append(("copy", target, source, size_bytes))
        here, there = self._at(target), self._at(source)
        here[0][here[1] : here[1] + size_bytes] = there[0][there[1] : there[1] + size_bytes]
        self.now_us += self.memory_us

    def launch(
        self, function: str, grid: Dim3, block: Dim3, dynamic_smem_bytes: int,
        parameters: Sequence[bytes], together: bool = False,
    ) -> None:  # fmt: skip
        if block.volume == 1023:
            raise DriverError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "launch", "too many resources")
        if self.recording is not None:
            self.recording.append((function, parameters))
            return
        self._run(function, parameters)
        self.now_us += self.gap_us or 0.0

    def _run(self, function: str, parameters: Sequence[bytes]) -> None:
        number = self.counts.get(function, 0)
        self.counts[function] = number + 1
        self.log.append(("launch", function))
        if function == "empty":
            return
        if self.pending is None:
            self.kernels[function].body(self, [int.from_bytes(p, "little") for p in parameters])
        self.now_us += self.durations[function](number) if function in self.durations else 10.0

    def empty_kernel(self) -> str | None:
        return "empty" if self.gap_us is not None else None

    def fill_shared(self, byte: int) -> bool:
        self.log.append(("fill_shared", byte))
        self.shared_byte = byte
        return self.fills_shared

    def graph(self, work: Callable[[], None]) -> list[tuple[Any, ...]] | None:
        if self.gap_us is None:
            return None
        self.recording = []
        work()
        nodes, self.recording = self.recording, None
        return nodes

    def launch_graph(self, graph: list[tuple[Any, ...]]) -> None:
        self.log.append(("graph", len(graph)))
        for node in graph:
            self._run(*node)
            self.now_us += self.node_gap_us

    def event(self) -> Event:
        return Event()

    def record(self, event: Event) -> None:
        self.log.append(("event",))
        self.now_us += self.pair_us / 2
        event.at_us = self.now_us
        self.now_us += self.pair_us / 2

    def elapsed_us(self, start: Event, end: Event) -> float:
        self.synchronize()
        return end.at_us - start.at_us

    def synchronize(self) -> None:
        self.host_at_us = self.now_us
        self._check()

    def reset_persisting_l2(self) -> None:
        self.log.append(("reset",))

    def profiler_range(self, *, start: bool) -> None:
        self.log.append(("range", start))

    def sm_clock_mhz(self) -> float | None:
        return 1500.0

    def temperature_c(self) -> float | None:
        return 40.0

    def free_bytes(self) -> int:
        return self.room - sum(len(m) for m in self.memory.values())

    def close(self) -> None:
        self.log.append(("close",))

    def floats(self, address: int, count: int) -> Any:
        """Device memory as `float`s, for a kernel to work on."""
        place, offset = self._at(address)
        return np.frombuffer(place, np.float32, count, offset)

    def _at(self, address: int) -> tuple[bytearray, int]:
        for base, place in self.memory.items():
            if base <= address < base + len(place):
                return place, address - base
        raise DriverError("CUDA_ERROR_INVALID_VALUE", "memory")

    def _check(self) -> None:
        if self.pending is not None:
            raise DriverError(self.pending, "synchronize")


def _scale(gpu: ScriptedGpu, given: list[int]) -> None:
    a, b, n, by = given
    gpu.floats(b, n)[:] = gpu.floats(a, n) * np.frombuffer(by.to_bytes(4, "little"), np.float32)


def _fails(name: str) -> Callable[[ScriptedGpu, list[int]], None]:
    def body(gpu: ScriptedGpu, _given: list[int]) -> None:
        gpu.pending = name

    return body


def _before(gpu: ScriptedGpu, given: list[int]) -> None:
    gpu.write(given[1] - 32, b"\0")


def _after(gpu: ScriptedGpu, given: list[int]) -> None:
    place, offset = gpu._at(given[1])
    size = len(place) - 2 * 4096
    gpu.write(given[1] - offset + 4096 + size + 3, b"\0")


def _destroy(gpu: ScriptedGpu, given: list[int]) -> None:
    """Right once, then it leaves nothing of its input."""
    _scale(gpu, given)
    gpu.floats(given[0], given[2])[:] = 0.0


def _count(gpu: ScriptedGpu, given: list[int]) -> None:
    """Counts its launches in a device variable."""
    _scale(gpu, given)
    place = gpu.memory[gpu.variables["calls"]]
    place[0] += 1


def _hang(_gpu: ScriptedGpu, _given: list[int]) -> None:
    time.sleep(3600)


def _segfault(_gpu: ScriptedGpu, _given: list[int]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _fragile(_gpu: ScriptedGpu, _given: list[int]) -> None:
    """Takes the first process that runs it down, and no other."""
    marker = Path(os.environ[BROKEN])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGSEGV)


def _garbage(_gpu: ScriptedGpu, _given: list[int]) -> None:
    """Writes to every open pipe: one of them is the replies'."""
    for fd in (int(open_one.name) for open_one in Path("/proc/self/fd").iterdir()):
        if fd < 3:
            continue
        try:
            os.write(fd, b"I passed\n")
        except OSError:
            continue


def _print(_gpu: ScriptedGpu, given: list[int]) -> None:
    os.write(1, b"hello from the kernel\n" * max(1, given[2]))


def _flood(_gpu: ScriptedGpu, _given: list[int]) -> None:
    while True:
        os.write(1, b"x" * 65536)


def _bug(_gpu: ScriptedGpu, _given: list[int]) -> None:
    raise ZeroDivisionError("a fault of ours")


SIZES = (8, 8, 4, 4)
TYPES = ("float const*", "float*", "int", "float")


def kernel(body: Callable[[ScriptedGpu, list[int]], None]) -> Kernel:
    """A kernel with the parameters of `scale(const float* a, float* b, int n, float by)`."""
    return Kernel(TYPES, SIZES, body)


KERNELS = {
    name: kernel(body)
    for name, body in {
        "scale": _scale, "other": _scale, "before": _before, "after": _after, "destroy": _destroy,
        "count": _count, "hang": _hang, "segfault": _segfault, "garbage": _garbage,
        "prints": _print, "fragile": _fragile, "flood": _flood, "bug": _bug,
        "illegal": _fails("CUDA_ERROR_ILLEGAL_ADDRESS"),
        "trap": _fails("CUDA_ERROR_LAUNCH_FAILED"), "asserts": _fails("CUDA_ERROR_ASSERT"),
        "watchdog": _fails("CUDA_ERROR_LAUNCH_TIMEOUT"),
        "ecc": _fails("CUDA_ERROR_ECC_UNCORRECTABLE"),
    }.items()
}  # fmt: skip


def launchable(symbol: str) -> Launchable:
    """A kernel as a task names it."""
    return Launchable(entry=0, symbol=symbol, shown=f"{symbol}<1>", parameter_types=TYPES)


class BreakableGpu(ScriptedGpu):
    """Copies nothing while the file exists that the environment names."""

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        if not Path(os.environ[BROKEN]).exists():
            super().copy(target, source, size_bytes)
