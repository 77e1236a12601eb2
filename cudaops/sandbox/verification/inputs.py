"""Input sets: what stands in memory when baseline and candidate are compared (design D3)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from cudaops.domain.workload import FLOATING, Allocation, Workload
from cudaops.sandbox.executors.base import InputSet
from cudaops.sandbox.verification.arrays import (
    element_count,
    read_array,
    write_array,
    write_widened,
)

CaseKind = Literal[
    "captured", "signed", "positive", "scaled", "permuted", "exact", "exact_positive"
]

PERTURBED_KINDS: tuple[CaseKind, ...] = ("signed", "positive", "scaled")
"""Tried in this order; the first on which the baseline stays finite is used."""

EXACT_KINDS: tuple[CaseKind, ...] = ("exact", "exact_positive")
"""Likewise; the second has no zero to divide by and nothing negative."""

EXACT_RANGE = 3
"""Exact inputs are integers from -3 to 3: products up to 9, so sums of 1.8 million terms stay
below 2**24 and every order of summation gives the same float."""


def before_path(workload: Workload, allocation: Allocation) -> Path:
    """File with the captured contents before the launch."""
    return Path(workload.folder) / allocation.before


def has_floating_input(workload: Workload) -> bool:
    """Whether any buffer that the kernel reads holds floating values."""
    return any(a.element in FLOATING and a.role != "out" for a in workload.allocations)


def build_case(
    workload: Workload, kind: CaseKind, seed: int, folder: Path, poison: int
) -> InputSet:
    """Write the contents of one case under `folder` and describe them.

    `out` buffers are filled with `poison` (0-255). Floating buffers that are read get new values;
    integer buffers keep the captured ones, because they may be indices, except in `permuted`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    contents: dict[int, str] = {}
    poisoned: dict[int, int] = {}
    for allocation in workload.allocations:
        if allocation.role == "out":
            poisoned[allocation.index] = poison
        contents[allocation.index] = str(_contents(workload, allocation, kind, generator, folder))
    return InputSet(contents=contents, poison=poisoned, scratch_poison=poison)


def _contents(
    workload: Workload,
    allocation: Allocation,
    kind: CaseKind,
    generator: np.random.Generator,
    folder: Path,
) -> Path:
    captured = before_path(workload, allocation)
    floating = allocation.element in FLOATING
    if (
        kind == "captured"
        or (not floating and kind != "permuted")
        or allocation.element == "opaque"
    ):
        return captured
    count = element_count(allocation.size_bytes, allocation.element)
    if kind == "signed":
        values = generator.standard_normal(count)
    elif kind == "positive":
        values = generator.uniform(0.1, 1.0, count)
    elif kind == "scaled":
        values = read_array(captured, allocation.element) * generator.uniform(0.5, 1.5, count)
    elif kind in EXACT_KINDS:
        least = -EXACT_RANGE if kind == "exact" else 1
        values = generator.integers(least, EXACT_RANGE + 1, count).astype(np.float64)
    else:
        values = generator.permutation(read_array(captured, allocation.element))
    path = folder / f"in_{allocation.index}.bin"
    write_array(path, values, allocation.element)
    _pad_tail(path, captured, allocation.size_bytes)
    return path


def _pad_tail(path: Path, captured: Path, size_bytes: int) -> None:
    """Give the file the allocation's exact size: bytes past the last whole element are kept."""
    missing = size_bytes - path.stat().st_size
    if missing > 0:
        with captured.open("rb") as source, path.open("ab") as target:
            source.seek(size_bytes - missing)
            target.write(source.read(missing))


def widen(workload: Workload, inputs: InputSet, folder: Path) -> InputSet:
    """The same values as doubles, for the widened baseline."""
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[int, str] = {}
    for allocation in workload.allocations:
        source = Path(inputs.contents[allocation.index])
        if allocation.element not in FLOATING or allocation.element == "f64":
            contents[allocation.index] = str(source)
            continue
        target = folder / f"wide_{allocation.index}.bin"
        write_widened(target, source, allocation.element)
        contents[allocation.index] = str(target)
    return inputs.model_copy(update={"contents": contents})


def can_widen(workload: Workload) -> bool:
    """Whether every buffer and argument has a scalar type whose widened layout is known."""
    if any(a.element == "opaque" for a in workload.allocations):
        return False
    return all(a.kind != "opaque" for a in workload.arguments)
