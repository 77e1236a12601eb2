"""The program of tests/data/projects/driver over the double of libcuda.so.1, whose kernels run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudaops.domain.execution import Captured, CaptureOutcome
from cudaops.domain.program import Program
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.program import GpuProgram
from cudaops.executors.cuda.toolchain import require_nvcc, toolkit_home
from cudaops.executors.isolation.phases import Phase
from cudaops.executors.project.application import open_application
from cudaops.settings import load_settings
from cudaops.storage import Facts, entry_of, make_once
from tests.preload.builds import reach

PROJECT = Path(__file__).parents[2] / "data" / "projects" / "driver"
ARCH = "sm_90"
DOUBLE, KERNELS, APP = "libcuda.so.1", "libkernels.so", "app"
BODIES = r"""
#include <algorithm>
template <class T> static T& at(void** values, int i) { return *static_cast<T*>(values[i]); }
extern "C" void smooth(void** v, const unsigned*, const unsigned*) {
    const float* in = at<const float*>(v, 0);
    float* out = at<float*>(v, 1);
    const int rows = at<int>(v, 2), columns = at<int>(v, 3);
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            float sum = 0.0f;
            for (int dy = -3; dy <= 3; ++dy)
                for (int dx = -3; dx <= 3; ++dx)
                    sum += in[std::min(std::max(row + dy, 0), rows - 1) * columns +
                              std::min(std::max(column + dx, 0), columns - 1)];
            out[row * columns + column] = sum / 49.0f;
        }
}
extern "C" void _ZN3ops5shiftIfEEvPT_S1_i(void** v, const unsigned*, const unsigned*) {
    for (int i = 0; i < at<int>(v, 2); ++i) at<float*>(v, 0)[i] += at<float>(v, 1);
}
extern "C" void _ZN3ops7amplifyEPfi(void** v, const unsigned*, const unsigned*) {
    for (int i = 0; i < at<int>(v, 1); ++i) at<float*>(v, 0)[i] *= 1.5f;
}
struct Band { float* rows; int width; float by; };
extern "C" void _ZN3ops5scaleE4Bandi(void** v, const unsigned*, const unsigned*) {
    const Band band = at<Band>(v, 0);
    for (int i = 0; i < at<int>(v, 1) * band.width; ++i) band.rows[i] *= band.by;
}
"""
"""What the double runs in place of the kernels of kernel.cu."""


class BuilderHere(GpuBuilder):
    """Programs open the double, which is no device of the machine's."""

    program_phase: Phase = "program"


def copy_of_project(folder: Path, bodies: str = "") -> Path:
    """The author's folder with the program made, and the double beside it. `bodies`: further
    functions of the double's kernels."""
    nvcc, gxx = require_nvcc(), find_toolchain().gxx
    include = f"-I{toolkit_home(nvcc) / 'include'}"
    texts = {name: (PROJECT / name).read_text() for name in ("kernel.cu", "main.cpp")}
    texts["kernels.cpp"] = BODIES + bodies
    double = reach().driver / DOUBLE
    link = ["-Wl,-rpath,$ORIGIN", str(double)]
    commands = [
        [gxx, "-O1", include, "-o", APP, "main.cpp", *link],
        [gxx, "-O1", "-fPIC", "-shared", "-o", KERNELS, "kernels.cpp"],
        [str(nvcc), "-O3", f"-arch={ARCH}", "-cubin", "-o", "kernel.cubin", "kernel.cu"],
    ]
    entry = entry_of(load_settings().builds_folder, "driver-app", commands, sorted(texts.items()))

    def make(made: Path) -> Facts:
        for command in commands:
            subprocess.run(command, cwd=made, check=True, timeout=120)
        return {}

    make_once(entry, texts, make)
    for name in ("kernel.cu", APP, KERNELS, "kernel.cubin"):
        shutil.copy(entry.folder / name, folder / name)
    shutil.copy(double, folder / DOUBLE)
    return folder


class Here:
    """One copy of the project."""

    def __init__(self, folder: Path, command: str = f"./{APP}") -> None:
        self.folder = folder
        self.program = open_application(folder, folder / "kernel.cu", command, ())
        self.builder = BuilderHere(load_settings().builds_folder, ARCH)

    def runs(self, *argv: str, program: Program | None = None, limit_s: float = 60) -> GpuProgram:
        """A run of it with these arguments."""
        return GpuProgram(self.builder, program or self.program, argv, self.folder, limit_s)

    def captured(self, folder: Path, kernel: str | None, *argv: str) -> Captured:
        """What a capture that goes well found."""
        found: CaptureOutcome = self.runs(*argv).capture(kernel, folder)
        assert isinstance(found, Captured), found
        return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """The project over the double."""
    (tmp_path / "project").mkdir()
    folder = copy_of_project(tmp_path / "project")
    monkeypatch.setenv("CUDA_DOUBLE_KERNELS", str(folder / KERNELS))
    return Here(folder)
