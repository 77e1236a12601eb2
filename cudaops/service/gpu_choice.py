"""Which GPUs workers may use, and which of them one does: by CUDA's own variable."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from itertools import takewhile
from typing import Any

from cudaops.errors import InputError
from cudaops.executors.cuda.telemetry import whole_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"""


def gpus_here(environment: Mapping[str, str]) -> tuple[str, ...]:
    """An entry for CUDA_VISIBLE_DEVICES for each GPU that a process may use: those that the
    variable names already, else those that NVML shows, without the ones cut into slices.

    Empty where none is known.
    """
    named = environment.get(VISIBLE)
    if named is None:
        return tuple(whole_gpus())
    entries = (entry.strip() for entry in named.split(","))
    # CUDA ignores an entry that it cannot use and all behind it.
    return tuple(takewhile(_names_a_gpu, entries))


def use_gpu(index: int, environment: MutableMapping[str, str]) -> None:
    """Let CUDA see this one alone, counted among `gpus_here` from 0.

    Without NVML there is nothing to count, and CUDA's own number is taken, by place on the bus.
    Raises InputError where there is no such GPU.
    """
    there = gpus_here(environment)
    if index < len(there):
        environment[VISIBLE] = there[index]
    elif there or VISIBLE in environment:
        by = f"{VISIBLE} names" if VISIBLE in environment else "this machine has"
        count = f"{len(there)} GPU" + ("" if len(there) == 1 else "s")
        raise InputError(f"--gpu {index}: {by} {count} to choose from, counted from 0")
    else:
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        environment[VISIBLE] = str(index)


def gpu_name(gauges: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Name of the GPU that such a process uses, of those that were measured; None where they do
    not say."""
    gpus = gauges.get("gpus") or []
    if len({gpu.get("name") for gpu in gpus}) == 1:
        name: str | None = gpus[0].get("name")
        return name
    first = next(iter(gpus_here(environment)), "")
    for gpu in gpus:
        if first.startswith("GPU-") and str(gpu.get("uuid", "")).startswith(first):
            return str(gpu.get("name"))
    return None


def _names_a_gpu(entry: str) -> bool:
    return entry.isdigit() or entry.startswith(("GPU-", "MIG-"))
