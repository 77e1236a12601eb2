"""Times settings of the matmul recipe's kernel beside cuBLAS (fp32, no tf32) on this machine's GPU.

    python benchmarks/matmul_tiles.py [--out tiles.json] [--sizes 1024,4096,2048,1000x900x1100]

The kernels are the recipe's own text for examples/naive_matmul.cu and, where a size is not square,
for the same product of M, N and K. Each setting is one shared library, all built side by side
first. Then all take turns, several rounds long, cuBLAS (torch.mm) among them, on operands that lie
in L2 as far as they fit; what is printed is the median over rounds. `--build-only` needs no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cudaops.domain.program import SourceFile  # noqa: E402
from cudaops.program.parse import load_program, parse_files  # noqa: E402
from cudaops.recipes.matmul import NAMES, MatmulRecipe  # noqa: E402

BUDGET_S = 90.0
ROUNDS = 5
BATCH_US = 4000.0
"""A batch, timed as one, is as many launches as take about this long."""

_OBLONG = """
__global__ void oblong(const float* A, const float* B, float* C, int M, int N, int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
}
int main() { return 0; }
"""
_ENTRY = """
#include <cuda_runtime.h>
extern "C" int repeat(int times, const float* A, const float* B, float* C, int M, int N, int K) {
    const dim3 grid((N + CUDAOPS_BN - 1) / CUDAOPS_BN, (M + CUDAOPS_BM - 1) / CUDAOPS_BM);
    const int block = CUDAOPS_GROUPS * (CUDAOPS_BM / CUDAOPS_TM) * (CUDAOPS_BN / CUDAOPS_TN);
    for (int i = 0; i < times; ++i) {
        if (M == N && N == K) naive_matmul_tiled<<<grid, block>>>(A, B, C, N);
        else oblong_tiled<<<grid, block>>>(A, B, C, M, N, K);
    }
    return cudaGetLastError();
}
"""

_TILES = """
    128 64 16 8 8 2   128 64 16 8 8 1    128 128 16 8 8 1   128 128 8 8 8 1    64 64 16 8 8 2
    64 64 32 8 8 4    64 64 16 8 8 1     64 64 32 8 8 2     128 64 16 16 8 4   128 64 16 16 8 2
    256 128 8 16 8 1  128 128 16 16 8 2  128 128 16 8 8 2   64 128 16 8 8 2    64 128 16 8 4 1
    128 64 16 8 4 1   256 64 16 16 8 2   64 64 16 16 4 2    64 64 16 8 4 1     128 128 8 16 8 1
    64 64 16 4 4 1    64 64 16 8 4 2     64 32 16 8 4 2     64 64 32 8 4 2     256 64 16 8 8 1
"""
"""BM, BN, BK, TM, TN and GROUPS of what is tried."""


@dataclass
class Setting:
    """One way to build the kernel, and its result."""

    values: tuple[int, ...]
    registers: int | None = None
    spilled_bytes: int | None = None
    failure: str | None = None
    times_us: dict[str, list[float]] = field(default_factory=dict)
    relative_difference: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it stands in the table."""
        BM, BN, BK, TM, TN, groups = self.values
        return f"{BM}x{BN}x{BK} {TM}x{TN} /{groups}"


def settings() -> list[Setting]:
    """Those of `_TILES`."""
    words = [int(word) for word in _TILES.split()]
    return [Setting(tuple(words[i : i + 6])) for i in range(0, len(words), 6)]


def kernel_text() -> str:
    """What the recipe writes for the example and for a product that is not square."""
    recipe = MatmulRecipe()
    square = load_program(ROOT / "examples" / "naive_matmul.cu")
    oblong = parse_files("main", (SourceFile(path="main.cu", text=_OBLONG),))
    texts = []
    for program in (square, oblong):
        (rewrite,) = recipe.propose(program, program.kernels[0], (), None)
        texts.append(rewrite.source)
    return "\n".join(texts)


def build(setting: Setting, text: str, folder: Path, arch: str) -> Path:
    """Compile one setting; its registers and failure are noted in it."""
    stem = re.sub(r"\W+", "_", setting.name)
    source, library = folder / f"{stem}.cu", folder / f"{stem}.so"
    source.write_text(text + _ENTRY, "utf-8")
    defines = [f"-D{name}={value}" for name, value in zip(NAMES, setting.values, strict=True)]
    done = subprocess.run(
        ["nvcc", "-O3", f"-arch={arch}", "-Xptxas", "-v", "-shared", "-Xcompiler", "-fPIC",
         *defines, "-o", str(library), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        setting.failure = done.stderr[-500:]
        return library
    report = done.stderr[done.stderr.find("naive_matmul_tiled") :]
    setting.registers = int(re.findall(r"Used (\d+) registers", report)[0])
    setting.spilled_bytes = int(re.findall(r"(\d+) bytes spill stores", report)[0])
    return library


class Measurement:
    """Operands of one size, and what multiplies them on the GPU."""

    def __init__(self, torch: Any, size: tuple[int, int, int]) -> None:
        self._torch, self.size = torch, size
        M, N, K = size
        torch.manual_seed(M + N + K)
        self.A, self.B = (torch.rand(s, device="cuda") for s in ((M, K), (K, N)))
        self.C = torch.zeros((M, N), device="cuda")
        self.expected = self.A @ self.B
        self.label = f"{M}" if M == N == K else f"{M}x{N}x{K}"

    def cublas(self, times: int) -> None:
        """cuBLAS's sgemm."""
        for _ in range(times):
            self._torch.mm(self.A, self.B, out=self.C)

    def of(self, library: ctypes.CDLL) -> Callable[[int], None]:
        """Launches a setting's kernel so many times."""
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (self.A, self.B, self.C)]

        def launches(times: int) -> None:
            if status := library.repeat(times, *pointers, *self.size):
                raise RuntimeError(f"CUDA error {status}")

        return launches

    def difference(self, launches: Callable[[int], None]) -> float:
        """Largest difference from cuBLAS's result, over that one's largest element."""
        self.C.fill_(float("nan"))
        launches(1)
        worst = (self.C - self.expected).abs().max() / self.expected.abs().max()
        return float(worst.item())

    def batch_us(self, launches: Callable[[int], None], times: int) -> float:
        """Mean time of a launch in a batch."""
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        launches(2)
        start.record()
        launches(times)
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1000 / times


def measure(
    made: list[tuple[Setting, ctypes.CDLL]], measurement: Measurement, deadline: float
) -> list[float]:
    """Rounds in which each setting and cuBLAS have a batch; returns cuBLAS's times."""
    label, cublas = measurement.label, []
    runs = [(setting, measurement.of(library)) for setting, library in made]
    for setting, launches in runs:
        try:
            setting.relative_difference[label] = measurement.difference(launches)
        except RuntimeError as error:
            setting.failure = str(error)
    measurement.batch_us(measurement.cublas, 20)
    times = max(3, int(BATCH_US / measurement.batch_us(measurement.cublas, 20)))
    for _ in range(ROUNDS):
        cublas.append(measurement.batch_us(measurement.cublas, times))
        for setting, launches in runs:
            if setting.failure is None and time.monotonic() < deadline:
                taken = measurement.batch_us(launches, times)
                setting.times_us.setdefault(label, []).append(taken)
    return cublas


def table(label: str, tried: list[Setting], cublas: list[float]) -> None:
    """What was found at one size, fastest first."""
    reference = statistics.median(cublas)
    timed = [s for s in tried if s.times_us.get(label)]
    print(f"\n{label}: cuBLAS {reference:.1f} us (rounds {min(cublas):.1f} to {max(cublas):.1f})")
    print(f"{'setting':34} {'us':>9} {'of cuBLAS':>9} {'regs':>5} {'spill':>5} {'difference':>10}")
    for setting in sorted(timed, key=lambda s: statistics.median(s.times_us[label])):
        taken = statistics.median(setting.times_us[label])
        print(
            f"{setting.name:34} {taken:9.1f} {100 * reference / taken:8.1f}% {setting.registers:5} "
            f"{setting.spilled_bytes:5} {setting.relative_difference[label]:10.1e}"
        )


def main() -> None:
    """Build, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("matmul_tiles.json"))
    parser.add_argument("--sizes", default="1024,4096,2048,1000x900x1100")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    tried, text = settings(), kernel_text()
    with tempfile.TemporaryDirectory() as name:
        with ThreadPoolExecutor(options.jobs) as pool:
            libraries = list(pool.map(lambda s: build(s, text, Path(name), options.arch), tried))
        print(f"{len(tried)} settings built in {time.monotonic() - began:.0f} s")
        for setting in tried:
            if setting.failure or options.build_only:
                print(setting.name, setting.failure or (setting.registers, setting.spilled_bytes))
        cublas = {}
        if not options.build_only:
            made = [
                (setting, ctypes.CDLL(str(library)))
                for setting, library in zip(tried, libraries, strict=True)
                if setting.failure is None
            ]
            cublas = compare(made, options.sizes, began + BUDGET_S)
    record = {"cublas_us": cublas, "settings": [asdict(s) | {"name": s.name} for s in tried]}
    options.out.write_text(json.dumps(record, indent=1), "utf-8")


def compare(
    made: list[tuple[Setting, ctypes.CDLL]], sizes: str, deadline: float
) -> dict[str, list[float]]:
    """Measure at every size for which there is time; returns cuBLAS's times by size."""
    import torch  # only where there is a GPU

    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    cublas = {}
    for words in sizes.split(","):
        M, *rest = (int(word) for word in words.split("x"))
        N, K = rest or (M, M)
        if time.monotonic() < deadline:
            measurement = Measurement(torch, (M, N, K))
            cublas[measurement.label] = measure(made, measurement, deadline)
            table(measurement.label, [s for s, _ in made], cublas[measurement.label])
    return cublas


if __name__ == "__main__":
    main()
