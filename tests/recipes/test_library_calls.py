"""The call of a library that does a kernel's job: made by cuBLAS's stand-in on a processor on the
kernel's own contents, it gives what the kernel gives; those of CUB compile by nvcc."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cudaops.domain.execution import ProgramRan
from cudaops.domain.program import SourceFile
from cudaops.domain.workload import Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.toolchain import cuda_includes, find_nvcc
from cudaops.executors.process import run_bounded
from cudaops.program.parse import parse_files
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.library_calls import SAYS, LibraryCall, library_call, library_program
from tests.recipes.bench import workload_of

Array = npt.NDArray[Any]
FLAT = "int i = blockIdx.x * blockDim.x + threadIdx.x; "
PLACE = (
    "int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;"
    "if (row >= m || col >= n) return; "
)


def call_of(
    folder: Path, parameters: str, body: str, given: dict[str, object]
) -> tuple[LibraryCall, Workload]:
    text = f"__global__ void k({parameters}) {{ {body} }}\nint main() {{ return 0; }}\n"
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    grid = (8, 8, 2) if "blockIdx.z" in body else (8, 8)
    workload = workload_of(folder / "w", "k", grid, (4, 4), given)  # type: ignore[arg-type]
    return library_call(program, program.kernels[0], (workload,), workload), workload


def ran(
    executor: CpuExecutor, folder: Path, call: LibraryCall, workload: Workload, wanted: Array
) -> float:
    (folder / "wanted").write_bytes(wanted.tobytes())
    text = library_program(call, cold=True)
    program = parse_files("library", (SourceFile(path="library.cu", text=text),))
    files = [f"{workload.folder}/{workload.allocations[i].before}" for i in call.buffers]
    done = executor.run_program(program, (*files, str(folder / "wanted")), 60.0)
    assert isinstance(done, ProgramRan), done
    said = SAYS.search(done.stdout)
    assert said is not None, done
    assert float(said[1]) >= 0
    return float(said[2])


LAYOUTS = {
    "NN": ("a[row * l + k]", "b[k * n + col]"),
    "NT": ("a[row * l + k]", "b[col * l + k]"),
    "TN": ("a[k * m + row]", "b[k * n + col]"),
    "TT": ("a[k * m + row]", "b[col * l + k]"),
}
PRODUCT = (
    PLACE + "T s = ZERO; for (int k = 0; k < l; ++k) s += LEFT * RIGHT; "
    "c[row * n + col] = ALPHA * s + BETA * c[row * n + col];"
)
TYPES = {
    "float": {"T": "float", "ZERO": "0.0f", "ALPHA": "1.5f", "BETA": "2.0f"},
    "double": {"T": "double", "ZERO": "0.0", "ALPHA": "1.5", "BETA": "2.0"},
}


@pytest.mark.parametrize(
    ("layout", "element"), [*((name, "float") for name in LAYOUTS), ("NN", "double")]
)
def test_a_product_in_every_layout(
    layout: str, element: str, cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    m, n, depth, rng = 12, 20, 9, np.random.default_rng(5)
    kind = np.float32 if element == "float" else np.float64
    a, b, c = (rng.standard_normal(s).astype(kind) for s in ((m, depth), (depth, n), (m, n)))
    product = np.matmul(a, b, dtype=np.float64)
    wanted: Array = (np.multiply(product, 1.5) + np.multiply(c, 2.0)).astype(kind)
    stored = (a if layout[0] == "N" else a.T.copy()), (b if layout[1] == "N" else b.T.copy())
    words = dict(zip(("LEFT", "RIGHT"), LAYOUTS[layout], strict=True)) | TYPES[element]
    body = re.sub(r"\b(?:T|ZERO|LEFT|RIGHT|ALPHA|BETA)\b", lambda w: words[w[0]], PRODUCT)
    call, workload = call_of(
        tmp_path,
        f"const {element}* a, const {element}* b, {element}* c, int m, int n, int l",
        body,
        {"a": stored[0], "b": stored[1], "c": c, "m": m, "n": n, "l": depth},
    )
    assert ran(cpu_executor, tmp_path, call, workload, wanted) < 1e-6


def test_a_wrong_result_shows(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    a = np.ones((8, 8), np.float32)
    call, workload = call_of(
        tmp_path,
        "const float* a, const float* b, float* c, int m, int n, int l",
        f"{PLACE}float s = 0.0f; for (int k = 0; k < l; ++k) s += a[row * l + k] * b[k * n + col]; "
        "c[row * n + col] = s;",
        {"a": a, "b": a, "c": a, "m": 8, "n": 8, "l": 8},
    )
    assert ran(cpu_executor, tmp_path, call, workload, 9 * a) == pytest.approx(1 / 9)


def test_products_of_a_batch(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((2, 8, 8)).astype(np.float32) for _ in range(2))
    call, workload = call_of(
        tmp_path,
        "const float* a, const float* b, float* c, int m, int n",
        f"{PLACE}int z = blockIdx.z; float s = 0.0f; for (int k = 0; k < 8; ++k) "
        "s += a[z * 64 + row * 8 + k] * b[z * 64 + k * 8 + col]; c[z * 64 + row * 8 + col] = s;",
        {"a": a, "b": b, "c": np.zeros_like(a), "m": 8, "n": 8},
    )
    assert "StridedBatched" in call.call
    assert ran(cpu_executor, tmp_path, call, workload, (a @ b).astype(np.float32)) < 1e-6


@pytest.mark.parametrize(("index", "transposed"), [("i * n + k", False), ("k * m + i", True)])
def test_a_matrix_times_a_vector(
    index: str, transposed: bool, cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    a, x = rng.standard_normal((12, 9)).astype(np.float32), np.arange(9, dtype=np.float32)
    call, workload = call_of(
        tmp_path,
        "const float* a, const float* x, float* y, int m, int n",
        f"{FLAT}if (i >= m) return; float s = 0.0f; for (int k = 0; k < n; ++k) "
        f"s += a[{index}] * x[k]; y[i] = s;",
        {"a": a.T.copy() if transposed else a, "x": x, "y": np.zeros(12, np.float32), "m": 12,
         "n": 9},
    )  # fmt: skip
    assert "gemv" in call.call
    assert ran(cpu_executor, tmp_path, call, workload, a @ x) < 1e-6


CUB = [
    ("sum", "const int* a, int* c, int n", FLAT + "if (i < n) atomicAdd(&c[1], a[i]);", np.int32),
    ("rows", "const float* a, float* c, int m, int n",
     FLAT + "if (i >= m) return; float s = 0.0f; for (int k = 0; k < n; ++k) s += a[i * n + k]; "
     "c[i] = s;", np.float32),
]  # fmt: skip


@pytest.mark.nvcc
@pytest.mark.parametrize(("parameters", "body", "kind"), [x[1:] for x in CUB], ids=["sum", "rows"])
def test_calls_of_cub_compile(parameters: str, body: str, kind: type, tmp_path: Path) -> None:
    given: dict[str, object] = {"a": np.ones(64, kind), "c": np.zeros(64, kind), "n": 8}
    if "int m" in parameters:
        given |= {"m": 8}
    call, _ = call_of(tmp_path, parameters, body, given)
    assert "cub::Device" in call.call
    (tmp_path / "library.cu").write_text(library_program(call, cold=False), "utf-8")
    nvcc = find_nvcc()
    assert nvcc is not None
    if not any((p / "cub/cub.cuh").is_file() for p in cuda_includes(nvcc)):
        pytest.skip("CUB's headers are not installed beside nvcc")
    command = [str(nvcc), "-std=c++17", "-arch=sm_86", "-c", "library.cu", "-o", "library.o"]
    done = run_bounded(command, cwd=tmp_path, timeout_s=200)
    assert done.exit_code == 0, done.stderr


def test_a_histogram_has_no_call(tmp_path: Path) -> None:
    with pytest.raises(NotUnderstood):
        call_of(
            tmp_path,
            "const int* a, int* c, int n",
            FLAT + "if (i < n) atomicAdd(&c[a[i]], 1);",
            {"a": np.zeros(64, np.int32), "c": np.zeros(64, np.int32), "n": 64},
        )
