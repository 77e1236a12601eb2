"""Folders of the system that a child needs: libraries, compilers, this Python, the GPU's nodes."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path

from cudaops.sandbox.isolation.landlock import DEVICE, READ, READ_DIR, RUN, WRITE_FILE, Rule

_LIBRARIES = (
    "/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/libx32", "/usr/local/lib", "/lib", "/lib64",
    "/lib32", "/nix/store",
)  # fmt: skip
_PROGRAMS = ("/usr", "/bin", "/sbin", "/opt/nvidia", "/opt/rh")
_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/alternatives",
)  # fmt: skip
_FACTS = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm",
          "/proc/filesystems", "/sys/devices/system/cpu", "/sys/devices/system/node")  # fmt: skip
_NODES = ("/dev/null", "/dev/zero", "/dev/full")
_SOURCES = ("/dev/urandom", "/dev/random")
_WIDEST = {"/", "/home", "/root", "/tmp", "/var", "/etc", "/proc", "/sys", "/dev", "/mnt", "/media"}


def base() -> tuple[Rule, ...]:
    """What every program needs to start: shared libraries, facts about the machine, /dev/null."""
    return (
        *(Rule(Path(p), RUN) for p in _LIBRARIES),
        *(Rule(Path(p), READ) for p in (*_FILES, *_FACTS, *_SOURCES)),
        *(Rule(Path(p), READ | WRITE_FILE) for p in _NODES),
    )


def programs() -> tuple[Rule, ...]:
    """The system's programs and the compilers', wherever those are installed."""
    return (*(Rule(Path(p), RUN) for p in _PROGRAMS), *(Rule(p, RUN) for p in _toolkits()))


def python() -> tuple[Rule, ...]:
    """This Python with its packages, cudaops itself among them."""
    found = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[3] / "cudaops"}
    found |= {Path(p) for p in sys.path if p and Path(p) != Path.cwd()}
    found |= {Path(sys.executable), Path(sys.executable).resolve()}
    # Python lists the folder a package lies in; what else lies there it may not read.
    listed = Rule(Path(__file__).parents[3], READ_DIR)
    return (listed, *(Rule(p, RUN) for p in _closed(found)))


def gpu() -> tuple[Rule, ...]:
    """What CUDA's driver opens. In /proc/self it names its threads, for which it opens files to
    truncate them (cuInit fails with OPERATING_SYSTEM otherwise; seen on an H200, 580.159.04)."""
    nodes = [*Path("/dev").glob("nvidia*"), Path("/dev/dxg"), Path("/dev/shm")]
    from_us = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p]
    mps = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    return (
        *(Rule(p, DEVICE) for p in nodes),
        *(Rule(p, RUN) for p in (*from_us, Path("/usr"))),
        *(Rule(Path(p), READ) for p in ("/proc", "/sys", "/etc", "/run/nvidia-persistenced")),
        *((Rule(Path(mps), DEVICE),) if mps else ()),
    )


@functools.cache
def _toolkits() -> tuple[Path, ...]:
    """Where g++ and nvcc live beside the system's own folders."""
    found = set()
    for name in (os.environ.get("CXX", "g++"), "g++", "nvcc", "ncu", "compute-sanitizer"):
        if program := shutil.which(name):
            found |= {Path(program).parent, Path(program).resolve().parent}
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            found.add(Path(home).resolve() / "bin")
    return tuple(_closed({p.parent if p.name == "bin" else p for p in found}))


def is_everybodys(path: Path) -> bool:
    """Whether it is a folder in which everything may lie: `/`, `/home`, a home folder."""
    return str(path) in _WIDEST or path == _home()


def _home() -> Path | None:
    """None for an account that has none, as in many containers."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _closed(paths: set[Path]) -> list[Path]:
    return sorted(p for p in paths if not is_everybodys(p))
