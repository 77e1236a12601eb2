"""Oracle anchors: inputs that anybody can make, outputs that are the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.certificate import Anchor
from cudaops.domain.execution import Captured, Compiled, Unit
from cudaops.domain.workload import Allocation, Element, Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.sandbox.anchors import ANCHOR_SEED, NOTHING_CHANGED, anchors_of, mixed, probe_inputs

STRIDED = Path(__file__).parents[1] / "data" / "certify" / "strided.cu"
SOURCE = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void k(const {type}* x, {type}* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body} }}
}}
int main() {{
    {type} h[64] = {{}}, *x, *y;
    for (int i = 0; i < 64; ++i) h[i] = ({type})i;
    cudaMalloc(&x, sizeof h); cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    k<<<2, 32>>>(x, y, 64);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\\n", (double)h[1]);
}}
"""


def anchors(program: Path, folder: Path, kernels: Path) -> tuple[Anchor, ...]:
    """Of a program as it would be captured."""
    executor = CpuExecutor("A10", kernels)
    parsed = load_program(program)
    captured = executor.capture(parsed, None, (), folder / "workloads", 120.0)
    assert isinstance(captured, Captured), captured
    workload = captured.workloads[0]
    unit = Unit(program=parsed, kernel=captured.kernel, callee=workload.callee)
    compiled = executor.compile(unit)
    assert isinstance(compiled, Compiled), compiled
    return anchors_of(executor, compiled, workload, folder / "work", 120.0)


def write(folder: Path, kind: str, body: str) -> Path:
    path = folder / "program.cu"
    path.write_text(SOURCE.format(type=kind, body=body))
    return path


def test_the_words_are_those_of_the_published_generator() -> None:
    """SplitMix64 from seed 0, as its authors' own program prints them."""
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(w) for w in mixed(0, 0, 3)] == words
    assert list(mixed(ANCHOR_SEED, 1, 4)) != list(mixed(ANCHOR_SEED, 2, 4))
    assert [*mixed(7, 1, 3), *mixed(7, 1, 4, 3)] == list(mixed(7, 1, 7))


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_inputs_fill_what_is_floating_and_leave_the_rest(tmp_path: Path, element: Element) -> None:
    size = 8 * 1000 + 1
    for index in (0, 1):
        (tmp_path / f"a{index}").write_bytes(bytes([7]) * size)
    workload = Workload(
        id="w0", kernel="k", callee="k", site=0, grid=Dim3(), block=Dim3(), arguments=(),
        allocations=(
            Allocation(
                index=0, size_bytes=size, element=element, role="out", before="a0", after="a0"
            ),
            Allocation(index=1, size_bytes=size, element="i32", role="in", before="a1", after="a1"),
        ),
        folder=str(tmp_path),
    )  # fmt: skip
    exact = probe_inputs(workload, "exact", tmp_path / "exact")
    signed = probe_inputs(workload, "signed", tmp_path / "signed")
    again = probe_inputs(workload, "signed", tmp_path / "again")
    filled = Path(signed.contents[0]).read_bytes()
    assert filled == Path(again.contents[0]).read_bytes()
    assert len(filled) == size
    assert filled[-1] == 7, "bytes past the last element are the captured ones"
    assert filled != Path(exact.contents[0]).read_bytes()
    assert signed.contents[1] == exact.contents[1] == str(tmp_path / "a1")
    if element == "f32":
        values = np.frombuffer(filled[:8000], dtype="<f4")
        assert -1 <= values.min() < -0.9
        assert 0.9 < values.max() < 1
        integers = np.frombuffer(Path(exact.contents[0]).read_bytes()[:8000], dtype="<f4")
        assert set(integers) == {-3, -2, -1, 0, 1, 2, 3}


def test_two_runs_give_the_same_anchors(tmp_path: Path, kernels: Path) -> None:
    first = anchors(STRIDED, tmp_path / "one", kernels)
    assert first == anchors(STRIDED, tmp_path / "two", kernels)
    signed, exact = first
    assert (signed.outputs[0].exact, exact.outputs[0].exact) == (False, True)
    assert signed.inputs_sha256 != exact.inputs_sha256


def test_what_differs_from_run_to_run_has_no_hash(tmp_path: Path, kernels: Path) -> None:
    program = write(tmp_path, "float", "y[i] = x[i] + 1e-9f * (float)(clock64() % 100000007);")
    signed, _ = anchors(program, tmp_path, kernels)
    assert signed.problem is None
    assert [o.sha256 for o in signed.outputs] == [None]


def test_integers_are_probed_with_what_was_captured(tmp_path: Path, kernels: Path) -> None:
    (only,) = anchors(write(tmp_path, "int", "y[i] = x[i] / 3;"), tmp_path, kernels)
    assert only.probe == "captured"
    assert only.outputs[0].exact
    assert only.outputs[0].sha256


def test_a_baseline_that_misbehaves_on_a_probe_has_an_anchor_that_says_so(
    tmp_path: Path, kernels: Path
) -> None:
    """Values used as an index leave the buffer on inputs that the program never had."""
    program = write(tmp_path, "float", "y[(int)(x[i] < 0 ? 1e8f : x[i])] = 1.0f;")
    signed, exact = anchors(program, tmp_path, kernels)
    for anchor in (signed, exact):
        assert anchor.outputs == ()
        assert anchor.problem


def test_a_kernel_that_changes_nothing_says_so(tmp_path: Path, kernels: Path) -> None:
    program = write(tmp_path, "float", "if (x[i] == y[i]) __syncwarp();")
    program.write_text(program.read_text().replace("float* y, int n", "const float* y, int n"))
    assert {a.problem for a in anchors(program, tmp_path, kernels)} == {NOTHING_CHANGED}
