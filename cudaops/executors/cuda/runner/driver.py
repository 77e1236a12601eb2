"""What the runner needs of a GPU's driver: one stream, memory, launches, events; and what its
errors mean: the kernel's doing, or the machine's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cudaops.domain.base import Dim3
from cudaops.domain.execution import MisbehaviourKind
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

    def host_memory(self, size_bytes: int) -> memoryview:
        """Memory of the host that the device copies to and from by itself, for as long as this
        process lives; any other where there is none such."""

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Copy from the host."""

    def read(self, address: int, size_bytes: int) -> bytes:
        """Copy to the host, after everything before it."""

    def read_into(self, address: int, target: memoryview) -> None:
        """The same into memory that is there."""

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
        together: bool = False,
    ) -> None:
        """Start a kernel; `parameters` are the values' bytes, each of its parameter's size.
        `together`: its blocks may wait for each other."""

    def empty_kernel(self) -> Any:
        """Handle of a kernel without parameters that does nothing; None where there is none."""

    def fill_shared(self, byte: int) -> bool:
        """Leave this byte all over the shared memory of every SM, for the next kernel to find.
        Whether that can be done here."""

    def graph(self, work: Callable[[], None]) -> Any:
        """Handle of a graph with the launches that `work` makes, one after the other, instead of
        starting them; None where there are no graphs. It may be launched until the module of its
        kernels is unloaded."""

    def launch_graph(self, graph: Any) -> None:
        """Start all launches of a graph."""

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


NO_ROOM = "CUDA_ERROR_OUT_OF_MEMORY"
REFUSED: frozenset[str] = frozenset({
    "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", NO_ROOM,
    "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE", "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_CDP_NOT_SUPPORTED",
    "CUDA_ERROR_CDP_VERSION_MISMATCH",
})  # fmt: skip
"""Errors with which a driver declines a launch. The context stays as it was."""

STICKY: dict[str, tuple[MisbehaviourKind, str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("out_of_bounds", "accessed unmapped memory"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": ("out_of_bounds", "accessed memory at a misaligned address"),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": ("out_of_bounds", "accessed the wrong kind of memory"),
    "CUDA_ERROR_INVALID_PC": ("crash", "jumped to an address that holds no instruction"),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": ("crash", "met a trap or an illegal instruction"),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": ("crash", "overflowed or corrupted its stack"),
    "CUDA_ERROR_LAUNCH_FAILED": ("crash", "failed while it ran (a trap or a bad access)"),
    "CUDA_ERROR_ASSERT": ("crash", "failed an assertion"),
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": ("crash", "ended without giving its tensor memory back"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": ("timeout", "ran longer than the display's watchdog allows"),
}
"""Errors of a kernel after which the context is lost. Source: CUDA driver API, enum CUresult: "this
leaves the process in an inconsistent state and any further CUDA work will return the same error"
(for LAUNCH_TIMEOUT the context's work is terminated, which comes to the same)."""


class KernelFault(Exception):
    """The launched code did something wrong; becomes a `Fault` reply."""

    def __init__(
        self, what: MisbehaviourKind, message: str, error: str = "", *, sticky: bool = False
    ) -> None:
        super().__init__(message)
        self.what: MisbehaviourKind = what
        self.message = message
        self.error = error
        self.sticky = sticky


class TaskRefused(Exception):
    """The runner cannot do what it is asked; becomes a `RefusedReply`."""

    def __init__(self, problem: str, remedy: str, *, no_room: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.no_room = no_room
        """The device had not enough free memory."""


def running_fault(kernels: str, error: DriverError) -> KernelFault | TaskRefused:
    """What an error means that shows while or after these kernels ran."""
    if error.name in STICKY:
        what, text = STICKY[error.name]
        more = f": {error.message}" if error.message else ""
        message = f"{kernels}: {text} ({error.name}){more}"
        return KernelFault(what, message, error.name, sticky=True)
    return refusal_of(error)


def launching_fault(kernel: str, geometry: str, error: DriverError) -> KernelFault | TaskRefused:
    """What an error means that a launch itself, or what prepares it, gives back."""
    if error.name in REFUSED:
        why = error.message or "the driver refuses the launch"
        text = f"{kernel}: {geometry}: {why} ({error.name})"
        return KernelFault("launch_refused", text, error.name)
    return running_fault(kernel, error)


def refusal_of(error: DriverError) -> TaskRefused:
    """A driver's error that no kernel is to blame for."""
    if error.name == NO_ROOM:
        return TaskRefused(
            f"the GPU has not enough free memory ({error.call})",
            "end other processes on the GPU (nvidia-smi lists them), or run a smaller problem",
            no_room=True,
        )
    return TaskRefused(
        f"the driver failed: {error}",
        "look at `nvidia-smi` and at `dmesg | grep -i xid`, then run again",
    )
