"""What a driver's error means: the kernel's doing, or the machine's."""

from __future__ import annotations

from cudaops.domain.execution import MisbehaviourKind
from cudaops.executors.cuda.runner.driver import DriverError

REFUSED: frozenset[str] = frozenset({
    "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE", "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_CDP_NOT_SUPPORTED",
    "CUDA_ERROR_CDP_VERSION_MISMATCH",
})  # fmt: skip
"""Errors with which a driver declines a launch. The context stays as it was."""

STICKY: dict[str, tuple[MisbehaviourKind, str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("out_of_bounds", "accessed memory that belongs to nobody"),
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


class Refusal(Exception):
    """The runner cannot do what it is asked; becomes a `Refused` reply."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def running_fault(kernels: str, error: DriverError) -> KernelFault | Refusal:
    """What an error means that shows while or after these kernels ran."""
    if error.name in STICKY:
        what, text = STICKY[error.name]
        more = f": {error.message}" if error.message else ""
        message = f"{kernels}: {text} ({error.name}){more}"
        return KernelFault(what, message, error.name, sticky=True)
    return refusal_of(error)


def launching_fault(kernel: str, geometry: str, error: DriverError) -> KernelFault | Refusal:
    """What an error means that a launch itself, or what prepares it, gives back."""
    if error.name in REFUSED:
        why = error.message or "the driver refuses the launch"
        text = f"{kernel}: {geometry}: {why} ({error.name})"
        return KernelFault("launch_refused", text, error.name)
    return running_fault(kernel, error)


def refusal_of(error: DriverError) -> Refusal:
    """A driver's error that no kernel is to blame for."""
    if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
        return Refusal(
            f"the GPU has not enough free memory ({error.call})",
            "end other processes on the GPU (nvidia-smi lists them), or run a smaller problem",
        )
    return Refusal(
        f"the driver failed: {error}",
        "look at `nvidia-smi` and at `dmesg | grep -i xid`, then run again",
    )
