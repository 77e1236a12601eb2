"""Folders of the system that a child needs: libraries, compilers, this Python, the GPU's nodes."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import stat
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from cudaops.executors.isolation.landlock import DEVICE, READ, READ_DIR, RUN, WRITE_FILE, PathRule

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
_COMPILERS = ("g++", "gcc", "nvcc", "as", "ld")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MPS = "/tmp/nvidia-mps"
"""Where MPS listens unless CUDA_MPS_PIPE_DIRECTORY says otherwise (NVIDIA's MPS documentation)."""
_MPS_ANSWERS_S = 1.0
_WIDEST = {"/", "/home", "/root", "/tmp", "/var", "/etc", "/proc", "/sys", "/dev", "/mnt", "/media"}


def base() -> tuple[PathRule, ...]:
    """What every program needs to start: shared libraries, facts about the machine, /dev/null."""
    return (
        *(PathRule(Path(p), RUN) for p in _LIBRARIES),
        *(PathRule(Path(p), READ) for p in (*_FILES, *_FACTS, *_SOURCES)),
        *(PathRule(Path(p), READ | WRITE_FILE) for p in _NODES),
    )


def programs() -> tuple[PathRule, ...]:
    """The system's programs and the compilers', wherever those are installed."""
    return (*(PathRule(Path(p), RUN) for p in _PROGRAMS), *(PathRule(p, RUN) for p in _toolkits()))


def python() -> tuple[PathRule, ...]:
    """This Python with its installed packages, and cudaops. Never a folder merely because it is on
    `sys.path`: with an editable install that is somebody's checkout."""
    return _python(tuple(sys.path))


@functools.lru_cache(maxsize=4)
def _python(searched: tuple[str, ...]) -> tuple[PathRule, ...]:
    ours = Path(__file__).parents[2]
    found = {ours, Path(sys.executable), Path(sys.executable).resolve()}
    found |= installed_below(sys.prefix, sys.base_prefix)
    paths = sysconfig.get_paths()
    found |= {Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = {Path(p).absolute() for p in searched if p}
    apart = {p: _packages(p) for p in folders if not any(p.is_relative_to(q) for q in found)}
    # Python lists the folder a package lies in; what else lies there it may not read.
    listed = {ours.parent, *(p for p, parts in apart.items() if parts)}
    found |= {part for parts in apart.values() for part in parts}
    return (
        *(PathRule(p, READ_DIR) for p in _closed(listed)),
        *(PathRule(p, RUN) for p in _closed(found)),
    )


def installed_below(*prefixes: str | Path) -> set[Path]:
    """What a Python and its packages take where they are installed, and nothing else there."""
    parts = ("bin", "lib", "lib64", "pyvenv.cfg")
    return {Path(prefix, part) for prefix in prefixes for part in parts}


def interpreter(path: Path) -> tuple[Path, ...]:
    """An interpreter, and what is installed where it may be: above its folder, above that of the
    one that it links to and, where it is a copy in a virtual environment, of the one that
    `pyvenv.cfg` names."""
    prefixes = [path.parent.parent, path.resolve().parent.parent]
    try:
        lines = (prefixes[0] / "pyvenv.cfg").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    homes = (
        line.partition("=")[2].strip() for line in lines if line.split("=")[0].strip() == "home"
    )
    prefixes += [Path(home).parent for home in homes if home.startswith("/")]
    found = {path, path.resolve(), *installed_below(*prefixes)}
    return tuple(p for p in sorted(found) if not is_everybodys(p))


@functools.cache
def _packages(folder: Path) -> tuple[Path, ...]:
    """What installers put there, by their own records: of a `pip install --target` for example."""
    if folder.name in ("site-packages", "dist-packages"):
        return (folder,)
    names: set[str] = set()
    for found in metadata.distributions(path=[str(folder)]):
        lines = (found.read_text("RECORD") or "").splitlines()
        names |= {line.partition(",")[0].partition("/")[0] for line in lines}
    return tuple(folder / name for name in sorted(names - {"", ".", ".."}))


def search_path(asked: str, *, compilers: bool) -> str:
    """A child's PATH: the system's, and before it what of the operator's has the compilers. The
    rest of theirs names folders of their home, which are nobody's business."""
    if not compilers:
        return _PATH
    found = (shutil.which(name, path=asked) for name in (os.environ.get("CXX", ""), *_COMPILERS))
    having = {str(Path(program).parent) for program in found if program}
    first = [p for p in dict.fromkeys(asked.split(os.pathsep)) if p in having]
    return os.pathsep.join((*first, _PATH))


def gpu() -> tuple[PathRule, ...]:
    """What CUDA's driver opens. In /proc/self it names its threads, for which it opens files to
    truncate them (cuInit fails with OPERATING_SYSTEM otherwise; seen on an H200, 580.159.04)."""
    nodes = [*Path("/dev").glob("nvidia*"), Path("/dev/dxg"), Path("/dev/shm")]
    from_us = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p]
    # A child of root passes the modes of files; of what is for root alone it gets nothing.
    settings = [Path("/etc")] if os.geteuid() != 0 else _for_everybody(Path("/etc"))
    mps = mps_folder()
    return (
        *(PathRule(p, DEVICE) for p in nodes),
        *(PathRule(p, RUN) for p in (*from_us, Path("/usr"))),
        *(PathRule(Path(p), READ) for p in ("/proc", "/sys", "/run/nvidia-persistenced")),
        *(PathRule(p, READ) for p in settings),
        *((PathRule(mps, DEVICE),) if mps else ()),
    )


def open_nodes() -> bool:
    """Whether every account may use the GPUs' nodes."""
    nodes = [p for p in Path("/dev").glob("nvidia*") if p.is_char_device()]
    return all(p.stat().st_mode & 0o006 == 0o006 for p in nodes)


def mps_folder() -> Path | None:
    """Where CUDA's Multi-Process Service listens, for root or for us; None where it does not."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS)
    control = folder / "control"
    try:
        found = control.stat()
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            return None
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.settimeout(_MPS_ANSWERS_S)
            asking.connect(str(control))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError, PermissionError):
        return None
    except OSError:
        return folder  # busy, or of another type: somebody listens
    return folder


def _for_everybody(folder: Path) -> list[Path]:
    """The folder, or where something in it is closed to others the parts of it that are not.
    Links count as nothing: what they lead to has a rule of its own or none."""
    try:
        entries = [e for e in os.scandir(folder) if not e.is_symlink()]
        parts: list[Path] = []
        whole = True
        for entry in entries:
            path, mode = Path(entry.path), entry.stat(follow_symlinks=False).st_mode
            is_folder = stat.S_ISDIR(mode)
            needed = 0o005 if is_folder else 0o004
            inner = [] if mode & needed != needed else _for_everybody(path) if is_folder else [path]
            whole = whole and inner == [path]
            parts += inner
    except OSError:
        return []
    return [folder] if whole else parts


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
