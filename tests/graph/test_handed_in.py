"""Of a whole program that is handed in a rewrite is judged; what else is in it is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate, Policy
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.handed_in import HandedIn, evaluated, look_at, notices_of
from cudaops.graph.verify_files import replaced_by
from cudaops.program.parse import load_program
from cudaops.sandbox.stripping import strip
from cudaops.sandbox.workbench import Workbench, open_workbench

AUTHOR = """
#include <cstdio>
__global__ void doubled(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
__global__ void marked(const float* y, int* marks, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) marks[i] = y[i] > 100.0f;
}
int main() {
    const int n = 1000;
    float h[n], *x, *y;
    int* marks;
    for (int i = 0; i < n; ++i) h[i] = i % 97 + 0.25f;
    cudaMalloc(&x, sizeof h), cudaMalloc(&y, sizeof h), cudaMalloc(&marks, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    for (int step = 0; step < 3; ++step) doubled<<<8, 128>>>(x, y, n);
    marked<<<8, 128>>>(y, marks, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g %g\\n", h[1], h[50]);
}
"""
FASTER = (("2.0f * x[i]", "x[i] + x[i]"), ("doubled", "added"))


def edited(*edits: tuple[str, str]) -> str:
    text = AUTHOR
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    folder = tmp_path_factory.mktemp("author")
    (folder / "author.cu").write_text(AUTHOR)
    return open_workbench(
        load_program(folder / "author.cu"),
        "doubled",
        (),
        CpuExecutor("A10", kernels),
        Policy(seed=5),
        folder / "run",
        sm_arch="sm_86",
        timeout_s=60.0,
    )


def looked_at(bench: Workbench, tmp_path: Path, *edits: tuple[str, str]) -> tuple[Gate, str]:
    """The gate, and what is said of the verdict."""
    path = tmp_path / "other.cu"
    path.write_text(edited(*FASTER, *edits))
    program = load_program(path)
    given = HandedIn(path.name, program, strip(bench, program))
    found = look_at(bench, given, lambda _: None)
    line, best = notices_of(bench, given, found)
    assert "best.cu" in best
    assert "not for other.cu" in best
    return found.gate, line


def test_host_code_that_does_something_else_is_refused(bench: Workbench, tmp_path: Path) -> None:
    gate, line = looked_at(bench, tmp_path, ("h[50]", "h[49]"))
    assert not gate.passed
    assert not gate.quarantined
    assert "other.cu as submitted: prints 98.5 where the author's" in gate.summary
    assert line == "judged: added for doubled; not judged: host code (changed)"


def test_another_kernel_that_computes_the_same(bench: Workbench, tmp_path: Path) -> None:
    gate, line = looked_at(bench, tmp_path, ("y[i] > 100.0f", "100.0f < y[i]"))
    assert gate.passed, gate.summary
    assert line == "judged: added for doubled, marked for its results only"


def test_another_kernel_that_computes_something_else_is_refused(
    bench: Workbench, tmp_path: Path
) -> None:
    """Nothing of it is printed."""
    gate, line = looked_at(bench, tmp_path, ("y[i] > 100.0f", "y[i] > 101.0f"))
    assert not gate.passed
    assert not gate.quarantined
    assert "instead of `marked`: correctness_captured" in gate.summary
    assert line == "judged: added for doubled; not judged: marked (changed)"


def test_what_stands_for_no_kernel_is_named_and_held(bench: Workbench, tmp_path: Path) -> None:
    gate, line = looked_at(
        bench, tmp_path, ("marked", "flags"), ("marks", "set"), ("y[i] > 100.0f", "y[i] > 101.0f")
    )
    assert gate.quarantined
    assert "whether `flags` computes what `marked` does is open" in gate.summary
    assert "not judged: marked (gone: " in line
    assert "flags (new)" in line


def test_kernels_that_were_put_together_are_no_rewrite_of_one(tmp_path: Path) -> None:
    (tmp_path / "author.cu").write_text(AUTHOR)
    fused = edited(
        ("marked<<<8, 128>>>(y, marks, n);", ""),
        ("if (i < n) y[i] = 2.0f * x[i];", "if (i < n) y[i] = 2.0f * x[i] + 0.0f;"),
        ("doubled", "all_of_it"),
    )
    (tmp_path / "fused.cu").write_text(fused)
    with pytest.raises(InputError, match="launches `all_of_it` instead of `doubled`, `marked`"):
        replaced_by(tmp_path / "author.cu", tmp_path / "fused.cu")


def test_device_code_that_lacks_its_launch_is_told_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "author.cu").write_text(AUTHOR)
    device = AUTHOR[AUTHOR.index("__global__") : AUTHOR.index("int main")]
    (tmp_path / "device.cu").write_text(device)
    with pytest.raises(InputError, match=r"device.cu is device code .* add `// @launch KERNEL"):
        replaced_by(tmp_path / "author.cu", tmp_path / "device.cu")


ONE = """    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];"""
TWO = """    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 1 < n) { y[i] = x[i] + x[i]; y[i + 1] = x[i + 1] + x[i + 1]; }"""
LAST = "\n    else if (i < n) y[i] = x[i] + x[i];"
HALF_THE_BLOCKS = (("doubled<<<8", "added<<<4"), ("doubled", "added"))


def judged(bench: Workbench, tmp_path: Path, *edits: tuple[str, str]) -> Gate | None:
    """The gate that refuses it."""
    path = tmp_path / "other.cu"
    path.write_text(edited(*edits))
    program = load_program(path)
    stripped = strip(bench, program)
    assert "@requires n == 1000" not in stripped.rewrite.source
    assert "grid=((gridDim.x + 1) / 2,gridDim.y,gridDim.z)" in stripped.rewrite.source
    assert stripped.as_seen is not None
    assert "@requires n == 1000" in stripped.as_seen.source
    policy = Policy(seed=5, min_speedup=0.001)
    given = HandedIn(path.name, program, stripped)
    evaluation, _ = evaluated(bench, stripped.rewrite, given, policy, lambda _: None)
    return next((gate for gate in evaluation.gates if not gate.passed), None)


def test_what_is_right_for_the_size_that_was_seen_alone_is_refused(
    bench: Workbench, tmp_path: Path
) -> None:
    """Two elements a thread, of which the last is lost where there is an odd number of them."""
    gate = judged(bench, tmp_path, (ONE, TWO), *HALF_THE_BLOCKS)
    assert gate is not None
    assert gate.name == "correctness_domain"
    assert gate.numbers["inputs_refused_as_launched"] > 0


def test_what_is_right_for_every_size_passes(bench: Workbench, tmp_path: Path) -> None:
    assert judged(bench, tmp_path, (ONE, TWO + LAST), *HALF_THE_BLOCKS) is None


def test_it_may_say_what_it_assumes(bench: Workbench, tmp_path: Path) -> None:
    says = ("__global__ void doubled", "// @requires n % 2 == 0\n__global__ void doubled")
    assert judged(bench, tmp_path, (ONE, TWO), says, *HALF_THE_BLOCKS) is None


SUMS = """
#include <cstdio>
template <typename T>
__global__ void sums(const T* x, T* out, int n) {
    T s = 0;
    for (int i = threadIdx.x; i < n; i += 32) s += x[i];
    out[threadIdx.x] = s;
}
template <typename T> double first(int times) {
    const int n = 1000;
    T h[n], *x, *out;
    for (int i = 0; i < n; ++i) h[i] = i % 97;
    cudaMalloc(&x, sizeof h), cudaMalloc(&out, 32 * sizeof(T));
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    for (int k = 0; k < times; ++k) sums<T><<<1, 32>>>(x, out, n);
    cudaMemcpy(h, out, sizeof(T), cudaMemcpyDeviceToHost);
    return h[0];
}
int main() {
    const double sum = first<float>(20);
    printf("%g %g\\n", sum, first<int>(1));
}
"""


def test_other_instances_of_the_kernel_are_judged_as_well(kernels: Path, tmp_path: Path) -> None:
    """Sums of integers in floating point are right for the small ones that the program has."""
    path = tmp_path / "author.cu"
    path.write_text(SUMS)
    executor = CpuExecutor("A10", kernels)
    bench = open_workbench(
        load_program(path), "sums", (), executor, Policy(seed=5), tmp_path / "run",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip
    assert bench.callee == "sums<float>"
    for kind, right in (("float", False), ("T", True)):
        path = tmp_path / f"{kind}.cu"
        path.write_text(
            SUMS.replace("T s = 0", f"{kind} s = 0, none = 0").replace("s += x", "s += none + x")
        )
        program = load_program(path)
        given = HandedIn(path.name, program, strip(bench, program))
        found = look_at(bench, given, lambda _: None)
        line, _ = notices_of(bench, given, found)
        assert found.gate.passed == right, found.gate.summary
        if right:
            assert line == "judged: sums for sums<float>, sums<int> for its results only"
        else:
            assert "instead of `sums<int>`: correctness_" in found.gate.summary
            assert line == "judged: sums for sums<float>; not judged: sums<int> (changed)"
