"""The CUDA toolkit: found, made to compile and to disassemble; and which toolkit, which driver and
which GPU go together.

Sources: NVIDIA, CUDA Toolkit, Driver and Architecture Matrix (first and last toolkit of an
architecture); CUDA Compatibility, table 1 of Minor Version Compatibility (least driver of a major
version); release notes of the toolkits that added an architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from cudaops.doctor.ladder import (
    DEFAULT_ARCH,
    CheckContext,
    CheckOutcome,
    PlannedCheck,
    failed,
    missing,
    ok,
)
from cudaops.domain.execution import CompileFailed, Unit
from cudaops.errors import PrerequisiteError
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.toolchain import nvcc_command
from cudaops.program.parse import load_program

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


def dotted(version: Version) -> str:
    """`13.0`."""
    return f"{version[0]}.{version[1]}"


def last_major(capability: Version) -> int | None:
    """Major version of the last toolkit for this GPU; None: there is none such yet."""
    return next((major for limit, major in LAST_MAJOR if capability < limit), None)


def fitting(
    capability: Version, release: Version, driver_cuda: Version, targets: Sequence[str]
) -> CheckOutcome:
    """Whether this toolkit builds for this GPU what this driver runs.

    `targets`: what `nvcc --list-gpu-code` prints; empty where it prints nothing.
    """
    arch = f"sm_{capability[0]}{capability[1]}"
    last = last_major(capability)
    known = arch in targets if targets else not (last and release[0] > last)
    if not known and last is not None and release[0] > last:
        return failed(
            f"nvcc {dotted(release)} does not compile for {arch} any more: CUDA {last}.x was the"
            " last that did",
            f"install a CUDA {last}.x toolkit and put its bin folder first on PATH",
        )
    if not known:
        first = FIRST_TOOLKIT.get(capability)
        wanted = f"CUDA {dotted(first)} or newer" if first else "a newer CUDA toolkit"
        return failed(
            f"nvcc {dotted(release)} does not know this GPU's {arch} yet",
            f"install {wanted} and put its bin folder first on PATH",
        )
    if release[0] > driver_cuda[0]:
        branch = LEAST_DRIVER.get(release[0])
        newer = f"R{branch} or newer" if branch else f"one that speaks CUDA {release[0]}"
        return failed(
            f"nvcc is of CUDA {dotted(release)}, the driver speaks CUDA {dotted(driver_cuda)}: it"
            " refuses what nvcc builds (CUDA driver version is insufficient)",
            f"update the driver to {newer}, or install a CUDA {driver_cuda[0]}.x toolkit and put"
            " its bin folder first on PATH",
        )
    minor = " (by minor version compatibility)" if release > driver_cuda else ""
    return ok(
        f"CUDA {dotted(release)} builds for {arch}, the driver runs CUDA {dotted(driver_cuda)}"
        f"{minor}"
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
    """Whether an ncu version supports a GPU and a driver."""

    finding: CheckOutcome
    older: bool
    """It came with a CUDA older than the driver's: a later refusal may be for that."""


def fitting_ncu(ncu: Version, capability: Version, driver_cuda: Version) -> NcuFit:
    """Whether this ncu knows this GPU and takes this driver, by their versions."""
    name = f"ncu {dotted(ncu)}"
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
                f"{name} (CUDA {dotted(cuda)}) is older than this GPU, compute capability"
                f" {dotted(capability)}",
                f"install ncu {dotted(least)} or newer",
            ),
            older,
        )
    if capability < (7, 5) and ncu > LAST_NCU_FOR_VOLTA:
        return NcuFit(
            failed(
                f"{name} does not know GPUs before Turing any more",
                f"install ncu {dotted(LAST_NCU_FOR_VOLTA)}",
            ),
            older,
        )
    if cuda[0] > driver_cuda[0]:
        return NcuFit(
            failed(
                f"{name} came with CUDA {dotted(cuda)}, the driver speaks CUDA"
                f" {dotted(driver_cuda)}",
                f"update the driver to R{LEAST_DRIVER.get(cuda[0], '')} or newer, or install the"
                f" ncu of CUDA {dotted(driver_cuda)}",
            ),
            older,
        )
    note = f", older than the driver's CUDA {dotted(driver_cuda)}" if older else ""
    return NcuFit(ok(f"{name}, of CUDA {dotted(cuda)}{note}"), older)


NVCC_TIMEOUT_S = 20.0
"""A whole program takes 0.7 to 1.1 s on an idle machine (packages, 2 cores)."""
TOOL_TIMEOUT_S = 5.0

PROBE = Path(__file__).with_name("probe.cu")
KERNEL = "twice"

INSTALL_TOOLKIT = "python -m pip install 'cudaops[toolkit]', or set CUDA_HOME"

CAUSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    r"unsupported GNU version|unsupported clang version": (
        "nvcc refuses this machine's g++",
        "let an older g++ be the first on PATH (Ubuntu: sudo apt-get install g++-13)",
    ),
    r"cannot find -lcudart_static|cudart_static": (
        "nvcc compiles, and finds no libcudart_static.a to link with",
        "python -m pip install --force-reinstall 'cudaops[toolkit]'",
    ),
    r"nv/target: No such file|cub/|thrust/": (
        "the toolkit is without its CCCL headers",
        "python -m pip install --force-reinstall 'cudaops[toolkit]'",
    ),
    r"[Nn]o space left": ("the disk is full", "free some space, or set TMPDIR to a larger disk"),
    r"gcc: |g\+\+: |No such file or directory.*(gcc|g\+\+)|cicc|cudafe": (
        "a part of the compiler is not there",
        "reinstall the toolkit and g++",
    ),
})  # fmt: skip
"""What nvcc says, what it means and what helps; the first that matches."""


def nvcc(site: CheckContext) -> CheckOutcome:
    """Compile and link a whole program, host code and static cudart included."""
    path = site.machine.find("nvcc")
    if path is None:
        detail = "not on PATH, in CUDA_HOME or in the toolkit extra; nvcc checks no rewrite here"
        return missing(detail, INSTALL_TOOLKIT)
    told = site.machine.run([str(path), "--version"], timeout_s=TOOL_TIMEOUT_S).stdout
    version = re.search(r"release (\d+)\.(\d+), V([\d.]+)", told)
    targets = _targets(site, path)
    fits = site.sm_arch in targets or not targets
    arch = site.sm_arch if fits else DEFAULT_ARCH
    program = site.folder / "probe"
    command = nvcc_command(path, PROBE, program, arch)
    done = site.machine.run(command, timeout_s=NVCC_TIMEOUT_S, folder=site.folder)
    if done.exit_code != 0:
        said = done.stdout + done.stderr
        why, remedy = _cause(said)
        return failed(f"{path} cannot build a program for {arch}: {why}: {said}", remedy)
    site.nvcc, site.program, site.build_arch = path, program, arch
    site.release = (int(version[1]), int(version[2])) if version else None
    return ok(f"{path}, {version[3] if version else 'unknown version'}: a program for {arch}")


def toolkit(site: CheckContext) -> CheckOutcome:
    """Whether nvcc builds for this GPU what this driver runs."""
    assert site.nvcc is not None
    if site.release is None or site.driver_cuda is None:
        return failed("nvcc or the driver does not tell its version", INSTALL_TOOLKIT)
    targets = _targets(site, site.nvcc)
    return fitting(site.device.capability, site.release, site.driver_cuda, targets)


def kernel(site: CheckContext) -> CheckOutcome:
    """Build a kernel as the cuda executor does; nvcc must compile it too."""
    module = _built(site, draft=False)
    if isinstance(module, CompileFailed):
        return failed(f"the builder refused a kernel: {module.message}", INSTALL_TOOLKIT)
    site.module = module
    used = module.resources[0] if module.resources else None
    facts = f", {used.registers} registers" if used else ", ptxas reported nothing"
    return ok(f"{module.compiler}: a cubin for {site.build_arch}{facts}")


def nvrtc(site: CheckContext) -> CheckOutcome:
    """Compile the same kernel with NVRTC, which the search uses."""
    if not site.machine.package("cuda.bindings"):
        return missing(
            "cuda-bindings is not installed: the search compiles with nvcc, seven times slower",
            "python -m pip install 'cudaops[cuda]'",
        )
    module = _built(site, draft=True)
    if isinstance(module, CompileFailed):
        return failed(
            f"NVRTC refused a kernel: {module.message}; the search compiles with nvcc, slower",
            "python -m pip install --force-reinstall 'cudaops[cuda]'",
        )
    if "nvrtc" not in module.compiler.lower():
        return missing(
            f"drafts are built by {module.compiler}: NVRTC did not take part",
            "python -m pip install 'cudaops[cuda]'",
        )
    return ok(f"{module.compiler}: a cubin for {site.build_arch}")


def disassembler(site: CheckContext) -> CheckOutcome:
    """Read the instructions of the kernel that was built."""
    assert site.module is not None
    for name, options in (("nvdisasm", ["-c"]), ("cuobjdump", ["-sass"])):
        path = site.machine.find(name)
        if path is None:
            continue
        command = [str(path), *options, str(site.module.image)]
        done = site.machine.run(command, timeout_s=TOOL_TIMEOUT_S)
        if done.exit_code == 0 and re.search(r"\bEXIT\b", done.stdout):
            return ok(f"{path} read the kernel's instructions")
        said = (done.stderr or done.stdout).strip()
        return failed(
            f"{path} cannot read what nvcc built: {said or f'exit code {done.exit_code}'}",
            "install the one of nvcc's own toolkit or a newer one:"
            " python -m pip install 'cudaops[toolkit]'",
        )
    return missing(
        "neither nvdisasm nor cuobjdump: a kernel's instructions are not shown",
        "python -m pip install nvidia-cuda-nvdisasm",
    )


def _built(site: CheckContext, *, draft: bool) -> Module | CompileFailed:
    platform = site.machine.platform(site.folder / "cache", site.build_arch)
    unit = Unit(program=load_program(PROBE), kernel=KERNEL, callee=KERNEL)
    return platform.unit(unit, draft=draft)


def _targets(site: CheckContext, path: Path) -> tuple[str, ...]:
    """Architectures this nvcc compiles for; empty where it is too old to tell (before 11.5)."""
    try:
        done = site.machine.run([str(path), "--list-gpu-code"], timeout_s=TOOL_TIMEOUT_S)
    except PrerequisiteError:
        return ()
    return tuple(re.findall(r"^sm_\w+$", done.stdout, flags=re.MULTILINE))


def _cause(said: str) -> tuple[str, str]:
    for pattern, cause in CAUSES.items():
        if re.search(pattern, said):
            return cause
    return "it says", INSTALL_TOOLKIT


STEPS = (
    PlannedCheck("nvcc", nvcc, ("cuda",), bound_s=30.0),
    PlannedCheck("toolkit", toolkit, ("cuda",), ("nvcc", "gpu")),
    PlannedCheck("kernel build", kernel, ("cuda",), ("nvcc",), bound_s=30.0),
    PlannedCheck("nvrtc", nvrtc, (), ("nvcc",), bound_s=30.0),
    PlannedCheck("disassembler", disassembler, (), ("kernel build",)),
)
