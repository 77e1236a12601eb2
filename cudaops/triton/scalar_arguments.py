"""Numbers that a Triton program passes, and which others may stand in their place."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.workload import FLOATING
from cudaops.executors.arrays import read_array
from cudaops.triton.source import OPTIONS, TritonKernel, only_equated
from cudaops.triton.worker_process import TritonLaunch

LEAST_SIZE = 8
"""Integer arguments from here on are taken for sizes."""


def sizes(launch: TritonLaunch, kernel: TritonKernel) -> dict[str, int]:
    """Integers that may say how much there is, by parameter."""
    numbers = _numbers(launch, kernel)
    return {k: v for k, v in numbers.items() if isinstance(v, int) and v >= LEAST_SIZE}


def other_numbers(
    launch: TritonLaunch, folder: Path, kernel: TritonKernel
) -> list[tuple[str, int | float]]:
    """Other values of what says nothing of where memory is touched, with the parameter: of floats,
    and of integers that are only asked to be equal to something, which then are what stands in the
    integer buffers. `folder`: has their contents before the launch."""
    held = [
        int(values[values.size // 2])
        for n, buffer in enumerate(launch.buffers)
        if buffer.element not in FLOATING and buffer.element != "bool"
        if (values := read_array(folder / f"before_{n}", buffer.element)).size
    ]
    found: list[tuple[str, int | float]] = []
    for name, value in _numbers(launch, kernel).items():
        others: list[int | float] = []
        if isinstance(value, float):
            others = [1.7 * value, -value, 3.5]
        elif only_equated(kernel.node, name):
            others = [*held, value + 1, 0, 1]
        found += [(name, other) for other in dict.fromkeys(others) if other != value]
    return found


def _numbers(launch: TritonLaunch, kernel: TritonKernel) -> dict[str, int | float]:
    """By parameter; a block size is compiled in and is none."""
    return {
        name: given["value"]
        for name, given in launch.args.items()
        if given and type(given.get("value")) in (int, float)
        if name not in kernel.constexpr and name not in OPTIONS
    }
