"""Which toolkit, which driver and which GPU go together. Pure.

Sources: NVIDIA, CUDA Toolkit, Driver and Architecture Matrix (first and last toolkit of an
architecture); CUDA Compatibility, table 1 of Minor Version Compatibility (least driver of a major
version); release notes of the toolkits that added an architecture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cudaops.doctor.records import Finding, failed, ok

Version = tuple[int, int]

FIRST_TOOLKIT: Mapping[Version, Version] = MappingProxyType({
    (7, 0): (9, 0), (7, 2): (9, 2), (7, 5): (10, 0), (8, 0): (11, 0), (8, 6): (11, 1),
    (8, 7): (11, 4), (8, 8): (13, 0), (8, 9): (11, 8), (9, 0): (11, 8), (10, 0): (12, 8),
    (10, 3): (12, 9), (11, 0): (13, 0), (12, 0): (12, 8), (12, 1): (12, 9),
})  # fmt: skip
"""Compute capability to the toolkit that first compiled for it."""

LAST_MAJOR: tuple[tuple[Version, int], ...] = (((5, 0), 11), ((7, 5), 12))
"""GPUs below this capability have no toolkit after this major version."""

LEAST_DRIVER: Mapping[int, int] = MappingProxyType({11: 450, 12: 525, 13: 580})
"""Toolkit's major version to the least branch of the Linux driver that runs what it builds."""


def shown(version: Version) -> str:
    """`13.0`."""
    return f"{version[0]}.{version[1]}"


def last_major(capability: Version) -> int | None:
    """Major version of the last toolkit for this GPU; None: there is none such yet."""
    return next((major for limit, major in LAST_MAJOR if capability < limit), None)


def fitting(
    capability: Version, release: Version, driver_cuda: Version, targets: Sequence[str]
) -> Finding:
    """Whether this toolkit builds for this GPU what this driver runs.

    `targets`: what `nvcc --list-gpu-code` prints; empty where it prints nothing.
    """
    arch = f"sm_{capability[0]}{capability[1]}"
    last = last_major(capability)
    known = arch in targets if targets else not (last and release[0] > last)
    if not known and last is not None and release[0] > last:
        return failed(
            f"nvcc {shown(release)} does not compile for {arch} any more: CUDA {last}.x was the"
            " last that did",
            f"install a CUDA {last}.x toolkit and put its bin folder first on PATH",
        )
    if not known:
        first = FIRST_TOOLKIT.get(capability)
        wanted = f"CUDA {shown(first)} or newer" if first else "a newer CUDA toolkit"
        return failed(
            f"nvcc {shown(release)} does not know this GPU's {arch} yet",
            f"install {wanted} and put its bin folder first on PATH",
        )
    if release[0] > driver_cuda[0]:
        branch = LEAST_DRIVER.get(release[0])
        newer = f"R{branch} or newer" if branch else f"one that speaks CUDA {release[0]}"
        return failed(
            f"nvcc is of CUDA {shown(release)}, the driver speaks CUDA {shown(driver_cuda)}: it"
            " refuses what nvcc builds (CUDA driver version is insufficient)",
            f"update the driver to {newer}, or install a CUDA {driver_cuda[0]}.x toolkit and put"
            " its bin folder first on PATH",
        )
    minor = " (by minor version compatibility)" if release > driver_cuda else ""
    return ok(
        f"CUDA {shown(release)} builds for {arch}, the driver runs CUDA {shown(driver_cuda)}{minor}"
    )


NCU_OF_CUDA: tuple[tuple[Version, Version], ...] = (
    ((2021, 2), (11, 4)), ((2021, 3), (11, 5)), ((2022, 1), (11, 6)), ((2022, 2), (11, 7)),
    ((2022, 3), (11, 8)), ((2022, 4), (12, 0)), ((2023, 1), (12, 1)), ((2023, 2), (12, 2)),
    ((2023, 3), (12, 3)), ((2024, 1), (12, 4)), ((2024, 2), (12, 5)), ((2024, 3), (12, 6)),
    ((2025, 1), (12, 8)), ((2025, 2), (12, 9)), ((2025, 3), (13, 0)), ((2025, 4), (13, 1)),
)  # fmt: skip
"""ncu and the toolkit it came with. Source: labels of NVIDIA's conda package nsight-compute."""
LAST_NCU_FOR_VOLTA: Version = (2024, 3)
"""Source: Nsight Compute 2025.1 release notes: GV100 is no longer supported."""


class NcuFit(NamedTuple):
    """Whether an ncu goes with a GPU and a driver."""

    finding: Finding
    older: bool
    """It came with a CUDA older than the driver's: a later refusal may be for that."""


def fitting_ncu(ncu: Version, capability: Version, driver_cuda: Version) -> NcuFit:
    """Whether this ncu knows this GPU and takes this driver, by their versions."""
    name = f"ncu {shown(ncu)}"
    cuda = next((cuda for release, cuda in reversed(NCU_OF_CUDA) if release <= ncu), None)
    if cuda is None:
        cuda = NCU_OF_CUDA[0][1]
        name += " or older"
    older = cuda < driver_cuda
    first = FIRST_TOOLKIT.get(capability)
    if first is not None and cuda < first and ncu <= NCU_OF_CUDA[-1][0]:
        least = next((release for release, of in NCU_OF_CUDA if of >= first), NCU_OF_CUDA[-1][0])
        return NcuFit(
            failed(
                f"{name} (CUDA {shown(cuda)}) is older than this GPU, compute capability"
                f" {shown(capability)}",
                f"install ncu {shown(least)} or newer",
            ),
            older,
        )
    if capability < (7, 5) and ncu > LAST_NCU_FOR_VOLTA:
        return NcuFit(
            failed(
                f"{name} does not know GPUs before Turing any more",
                f"install ncu {shown(LAST_NCU_FOR_VOLTA)}",
            ),
            older,
        )
    if cuda[0] > driver_cuda[0]:
        return NcuFit(
            failed(
                f"{name} came with CUDA {shown(cuda)}, the driver speaks CUDA {shown(driver_cuda)}",
                f"update the driver to R{LEAST_DRIVER.get(cuda[0], '')} or newer, or install the"
                f" ncu of CUDA {shown(driver_cuda)}",
            ),
            older,
        )
    note = f", older than the driver's CUDA {shown(driver_cuda)}" if older else ""
    return NcuFit(ok(f"{name}, of CUDA {shown(cuda)}{note}"), older)
