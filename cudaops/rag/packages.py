"""Packages of a package index as sources: pip brings a wheel, nothing of it is installed or run.

A source distribution is not asked for: pip runs its build to learn its name.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cudaops.errors import InputError

PREFIX = "pypi:"
"""Of an origin that is a package."""

DOWNLOAD_TIMEOUT_S = 1800
"""For one wheel: the largest, of torch, has some 900 MB."""

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9.!+_-]+)?")


class Recommended(NamedTuple):
    """A package whose kernels are worth reading."""

    name: str
    only: tuple[str, ...]
    """Globs of the part of its wheel that people wrote; the rest is generated or bundled."""
    what: str


RECOMMENDED = (
    Recommended(
        "flashinfer-python",
        ("flashinfer/data/include/**",),
        "attention, paged KV cache, norms, sampling, top-k",
    ),
    Recommended(
        "nvidia-cutlass",
        ("cutlass_library/source/include/**", "cutlass_library/source/examples/**"),
        "matrix products, convolutions, fused epilogues, TMA and tensor cores",
    ),
    Recommended(
        "nvidia-cuda-cccl",
        ("**/cccl/cub/**", "**/cccl/thrust/system/cuda/**"),
        "scan, reduction, sorting, histograms, selection (CUB, Thrust)",
    ),
)


def is_package(text: str) -> bool:
    """Whether `text` names a package and no path: `pypi:NAME`, `pypi:NAME==VERSION`."""
    return text.startswith(PREFIX)


def origin_of(text: str) -> str:
    """The origin of what `pypi:NAME==VERSION` brings: one a package, whatever its version.

    Raises InputError where it names none.
    """
    requirement = text.removeprefix(PREFIX)
    if not _REQUIREMENT.fullmatch(requirement):
        raise InputError(f"{text} names no package: pypi:NAME or pypi:NAME==VERSION")
    return PREFIX + re.sub(r"[-_.]+", "-", requirement.split("==")[0]).lower()


@contextmanager
def downloaded(text: str) -> Iterator[Path]:
    """The wheel of `pypi:NAME`, from the index that pip is set to; gone afterwards.

    Raises InputError: no such package, no wheel of it for this machine, no pip, no network.
    """
    origin = origin_of(text)
    with tempfile.TemporaryDirectory(prefix="cudaops-package-") as folder:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-input", "--no-deps", "--only-binary=:all:", "--dest", folder,
            "--", text.removeprefix(PREFIX),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{origin} cannot be downloaded: {error}") from error
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            why = (said or done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise InputError(
                f"{origin} cannot be downloaded as a wheel: {why.removeprefix('ERROR: ')[:300]};"
                " a source archive that you download yourself can be added by its path"
            )
        yield wheels[0]
