"""Where the CUDA compiler is, and the one command line that has the last word on a rewrite."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


def find_nvcc() -> Path | None:
    """nvcc on PATH, in CUDA_HOME or CUDA_PATH, or in the `toolkit` extra's wheels; else None."""
    on_path = shutil.which("nvcc")
    if on_path is not None:
        return Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home and (candidate := Path(home) / "bin" / "nvcc").is_file():
            return candidate
    return _nvcc_in_wheels()


def _nvcc_in_wheels() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for candidate in sorted(Path(location).glob("cu*/bin/nvcc"), reverse=True):
            return candidate
    return None


def nvcc_command(nvcc: Path, source: Path, output: Path, sm_arch: str) -> list[str]:
    """`nvcc -O3 -arch=sm_86 -o OUT SOURCE`, static cudart, local headers found beside the source.

    The wheels keep their libraries in `lib` where nvcc expects `lib64`: that folder is added.
    """
    command = [
        str(nvcc),
        "-O3",
        f"-arch={sm_arch}",
        "-cudart",
        "static",
        "-o",
        str(output),
        str(source),
    ]
    library = nvcc.resolve().parent.parent / "lib"
    if library.is_dir():
        command += ["-L", str(library)]
    return command
