"""Parts of every LD_PRELOAD library, and where one can be used."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from cudaops.errors import PrerequisiteError

SOURCE = Path(__file__).parent / "source"
"""Of `hooks.h`, which is before libcuda, and of what it needs."""
MACHINES = ("x86_64", "aarch64")


def check_platform() -> None:
    """Raise PrerequisiteError where no program could preload the library."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise PrerequisiteError(
            f"there is no preloading on {sys.platform} {platform.machine()}",
            "run it on Linux, on x86-64 or aarch64, where the program runs",
        )
    if platform.libc_ver()[0] != "glibc":
        raise PrerequisiteError(
            "the C library is not glibc, whose dlsym the preload library wraps",
            "run it where the program runs with glibc",
        )
