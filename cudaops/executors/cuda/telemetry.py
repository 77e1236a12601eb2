"""How busy, full, hot and fast each GPU of this machine is, by NVML; makes no CUDA context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()


def gpu_gauges() -> list[dict[str, str | float]]:
    """One entry a GPU: `index`, `uuid`, `name`, `utilization_ratio` (0 to 1), `memory_used_bytes`,
    `memory_total_bytes`, `temperature_celsius`, `sm_clock_hertz`, `power_watts`.

    What NVML does not say is missing, never 0. Empty without NVML or GPU.
    """
    return _each(_gauges)


def whole_gpus() -> list[str]:
    """UUIDs of the GPUs that are not cut into slices (MIG), in the order of the bus, which is
    nvidia-smi's. Empty without NVML or GPU."""
    return [uuid for uuid in _each(_whole) if uuid is not None]


def _each(ask: Callable[[Any, int], T]) -> list[T]:
    """`ask(nvml, index)` for every GPU that NVML shows to this process."""
    try:
        import pynvml
    except ImportError:
        return []
    with _lock:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return []
        try:
            return [ask(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            return []
        finally:
            pynvml.nvmlShutdown()


def _whole(nvml: Any, index: int) -> str | None:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        sliced, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # most GPUs cannot be cut at all
        sliced = nvml.NVML_DEVICE_MIG_DISABLE
    if sliced != nvml.NVML_DEVICE_MIG_DISABLE:
        return None
    return _name(nvml.nvmlDeviceGetUUID(handle))


def _gauges(nvml: Any, index: int) -> dict[str, str | float]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    asked: dict[str, Callable[[], str | float]] = {
        "uuid": lambda: _name(nvml.nvmlDeviceGetUUID(handle)),
        "name": lambda: _name(nvml.nvmlDeviceGetName(handle)),
        "utilization_ratio": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "memory_total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
            handle, nvml.NVML_TEMPERATURE_GPU
        ),
        "sm_clock_hertz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    }
    found: dict[str, str | float] = {"index": float(index)}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except nvml.NVMLError:
            continue
    return found


def _name(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
