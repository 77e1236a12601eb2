"""What the runner needs of a GPU's driver: one stream, memory, launches, events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from cudaops.domain.base import Dim3
from cudaops.executors.cuda.protocol import DeviceFacts, Launchable


class DriverError(Exception):
    """A call of the driver that did not return CUDA_SUCCESS."""

    def __init__(self, name: str, call: str, message: str = "") -> None:
        super().__init__(f"{call}: {name}{': ' + message if message else ''}")
        self.name = name
        """`CUDA_ERROR_ILLEGAL_ADDRESS`."""
        self.call = call
        self.message = message
        """More than the name says, where the driver has it."""


class DriverMissing(Exception):
    """There is no driver or no device that could be opened."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class Driver(Protocol):
    """One device with one context and one stream; everything below is ordered in that stream.

    Addresses are device addresses. Handles are opaque. Raises DriverError; errors of a kernel show
    at `synchronize`, `read` or `elapsed_us`, as they do on a GPU.
    """

    facts: DeviceFacts

    def load(self, image: Path) -> Any:
        """Load a module; its handle."""

    def unload(self, module: Any) -> None:
        """Forget a module."""

    def function(self, module: Any, kernel: Launchable) -> Any:
        """Handle of a kernel."""

    def parameter_sizes(self, function: Any) -> tuple[int, ...]:
        """Bytes of each parameter, in order."""

    def allow_dynamic_shared(self, function: Any, size_bytes: int) -> None:
        """Opt in to this much dynamic shared memory for launches of the function."""

    def variable(self, module: Any, symbol: str) -> tuple[int, int]:
        """Address and size in bytes of a device variable."""

    def allocate(self, size_bytes: int) -> int:
        """Memory aligned to 256 bytes."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Copy from the host."""

    def read(self, address: int, size_bytes: int) -> bytes:
        """Copy to the host, after everything before it."""

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        """Set every byte."""

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Copy on the device."""

    def launch(
        self,
        function: Any,
        grid: Dim3,
        block: Dim3,
        dynamic_smem_bytes: int,
        parameters: Sequence[bytes],
    ) -> None:
        """Start a kernel; `parameters` are the values' bytes, each of its parameter's size."""

    def event(self) -> Any:
        """A new event that records times."""

    def record(self, event: Any) -> None:
        """Let the event happen now in the stream."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Time between two events, after waiting for the second."""

    def synchronize(self) -> None:
        """Wait for everything."""

    def reset_persisting_l2(self) -> None:
        """Give lines that were pinned in L2 back to normal use, and leave no room for new ones."""

    def profiler_range(self, *, start: bool) -> None:
        """Begin or end what a profiler started with `--profile-from-start off` looks at."""

    def sm_clock_mhz(self) -> float | None:
        """SM clock now; None where it cannot be asked."""

    def temperature_c(self) -> float | None:
        """Temperature of the GPU now; None where it cannot be asked."""

    def free_bytes(self) -> int:
        """Memory of the device that is free now."""

    def close(self) -> None:
        """Give everything back; the driver is not used again."""
