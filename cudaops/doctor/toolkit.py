"""The CUDA toolkit: found, and made to compile and to disassemble."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cudaops.doctor.ladder import DEFAULT_ARCH, Site, Step
from cudaops.doctor.records import Finding, failed, missing, ok
from cudaops.doctor.versions import fitting
from cudaops.domain.execution import CompileFailed, Unit
from cudaops.errors import PrerequisiteError
from cudaops.program.parse import load_program
from cudaops.sandbox.gpu.platform import Module
from cudaops.sandbox.toolchain import nvcc_command

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


def nvcc(site: Site) -> Finding:
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
    return ok(f"{path}, {version[3] if version else 'version not told'}: a program for {arch}")


def toolkit(site: Site) -> Finding:
    """Whether nvcc builds for this GPU what this driver runs."""
    assert site.nvcc is not None
    if site.release is None or site.driver_cuda is None:
        return failed("nvcc or the driver does not tell its version", INSTALL_TOOLKIT)
    targets = _targets(site, site.nvcc)
    return fitting(site.device.capability, site.release, site.driver_cuda, targets)


def kernel(site: Site) -> Finding:
    """Build a kernel the way the cuda executor does, with nvcc's last word."""
    module = _built(site, draft=False)
    if isinstance(module, CompileFailed):
        return failed(f"the builder refused a kernel: {module.message}", INSTALL_TOOLKIT)
    site.module = module
    used = module.resources[0] if module.resources else None
    facts = f", {used.registers} registers" if used else ", ptxas told nothing"
    return ok(f"{module.compiler}: a cubin for {site.build_arch}{facts}")


def nvrtc(site: Site) -> Finding:
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


def disassembler(site: Site) -> Finding:
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
        "neither nvdisasm nor cuobjdump: nothing is said of a kernel's instructions",
        "python -m pip install nvidia-cuda-nvdisasm",
    )


def _built(site: Site, *, draft: bool) -> Module | CompileFailed:
    platform = site.machine.platform(site.folder / "cache", site.build_arch)
    unit = Unit(program=load_program(PROBE), kernel=KERNEL, callee=KERNEL)
    return platform.unit(unit, draft=draft)


def _targets(site: Site, path: Path) -> tuple[str, ...]:
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
    Step("nvcc", nvcc, ("cuda",), bound_s=30.0),
    Step("toolkit", toolkit, ("cuda",), ("nvcc", "gpu")),
    Step("kernel build", kernel, ("cuda",), ("nvcc",), bound_s=30.0),
    Step("nvrtc", nvrtc, (), ("nvcc",), bound_s=30.0),
    Step("disassembler", disassembler, (), ("kernel build",)),
)
