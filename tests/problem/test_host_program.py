"""From directives and a draw to a program: what it launches, and which directives are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.program import ProblemArray, ProblemNumber, Program, ReferenceProblem
from cudaops.errors import InputError
from cudaops.problem.host_program import authored, problem_program, without_main
from cudaops.program.parse import parse_files
from tests.problem.problems import SCALE_CU

X = ProblemArray(name="x", element="f32", shape=(10, 20))
LABELS = ProblemArray(name="labels", element="i64", shape=(10,))
OUT = ProblemArray(name="out", element="f32", shape=(10, 20), origin="output")
N = ProblemNumber(name="n", is_integer=True, value=200)
BY = ProblemNumber(name="by", is_integer=False, value=2.5)
KERNEL = "__global__ void k(const float* x, float* out, int n) {}\n"


def problem(
    *outputs: ProblemArray, arrays: tuple[ProblemArray, ...] = (X, LABELS)
) -> ReferenceProblem:
    return ReferenceProblem(
        script="/p.py", sha256="0" * 64, python="/python", form="function", arrays=arrays,
        numbers=(N, BY), outputs=outputs or (OUT,),
    )  # fmt: skip


def made(folder: Path, source: str, of: ReferenceProblem | None = None) -> Program:
    (folder / "k.cu").write_text(source, "utf-8")
    return problem_program(folder / "k.cu", of or problem())


def launcher(folder: Path, source: str, of: ReferenceProblem | None = None) -> str:
    """The launching function, in one line."""
    text = without_main(made(folder, source, of)).main.text
    return " ".join(text.partition("inline cudaError_t launch_kernels(")[2].split())


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_the_authors_text_stays_as_it_is(end: str, tmp_path: Path) -> None:
    source = SCALE_CU.rstrip("\n") + end
    program = made(tmp_path, source)
    assert program.main.text.startswith(source)
    assert authored(program).main.text == source
    home = without_main(program).main.text
    assert home.startswith(source)
    assert home.endswith("}\n")
    assert "launch_kernels(" in home
    assert "int main" not in home
    assert [site.kernel for site in program.launches] == ["scale"]


def test_a_program_without_a_problem_is_its_authors_whole(tmp_path: Path) -> None:
    program = parse_files("k", made(tmp_path, SCALE_CU).files)
    assert authored(program) == without_main(program) == program


def test_headers_beside_the_source_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "mine.cuh").write_text("__device__ inline float twice(float x) { return 2 * x; }\n")
    program = made(tmp_path, f'#include "mine.cuh"\n{SCALE_CU}')
    assert [f.path for f in program.files] == ["k.cu", "mine.cuh"]


def test_several_launches_with_scratch_memory_sizes_and_constants(tmp_path: Path) -> None:
    source = """
        #define SIDE 16
        // @scratch half bytes=4*x_size0*SIDE
        // @launch first<SIDE> grid=(x_size1, x_size0) block=(SIDE, 2) smem=60000 args=(x+20, half)
        // @launch last grid=(x_size / SIDE) block=(n % 3 + 1) args=(half, out, by)
        template <int S> __global__ void first(const float* x, float* half) {}
        __global__ void last(const float* half, float* out, float by) {}
    """
    text = launcher(tmp_path, source)
    assert text.startswith(
        "const float* x, float* out, long long x_size, long long x_size0, long long x_size1, "
        "long long n, double by, cudaStream_t cudaops_stream)"
    )
    assert "cudaops_grid0((unsigned)((long long)x_size1), (unsigned)((long long)x_size0));" in text
    assert "cudaops_smem0 = 60000LL;" in text
    assert "cudaFuncSetAttribute(first<SIDE>, cudaFuncAttributeMaxDynamicSharedMemorySize" in text
    assert "cudaops_bytes_half = ((4LL * (long long)x_size0) * 16LL);" in text
    assert "first<SIDE><<<" in text
    assert "((x + 20LL), (float*)(cudaops_scratch_half))" in text
    assert "((const float*)(cudaops_scratch_half), out, by);" in text
    assert "cudaFreeAsync(cudaops_scratch_half" in text


@pytest.mark.parametrize(
    ("taken", "given"),
    [
        ("const float* x", "(x,"),
        ("const float4* x", "((const float4*)(x),"),
        ("const scalar* __restrict__ x", "((const scalar*)(x),"),
    ],
)
def test_memory_is_handed_over_as_the_kernel_takes_it(
    taken: str, given: str, tmp_path: Path
) -> None:
    source = f"typedef float scalar;\n// @launch k grid=(1) block=(1) args=(x, out, n)\n{KERNEL}"
    assert f">>>{given}" in launcher(tmp_path, source.replace("const float* x", taken))


def test_a_kernel_may_read_without_saying_const(tmp_path: Path) -> None:
    source = f"// @launch k grid=(1) block=(1) args=(x, out, n)\n{KERNEL}"
    assert launcher(tmp_path, source).startswith("const float* x, float* out,")
    assert launcher(tmp_path, source.replace("const ", "")).startswith("float* x, float* out,")


def test_a_template_deduces_its_types(tmp_path: Path) -> None:
    source = f"// @launch k grid=(1) block=(1) args=(x, out, n)\ntemplate <class T> {KERNEL}"
    assert ">>>(x, out, n)" in launcher(tmp_path, source.replace("float*", "T*"))


@pytest.mark.parametrize(
    ("directive", "told"),
    [
        ("", "k.cu:1:1: no `// @launch kernel grid=(..)"),
        ("@launch j grid=(1) block=(1) args=(x, out, n)", "unknown kernel `j`"),
        ("@launch k grid=(1) block=(1) args=(x, out)", "`k` takes 3 arguments, `args=` has 2"),
        ("@launch k grid=(m) block=(1) args=(x, out, n)", "unknown name `m`; known are by, labels"),
        ("@launch k grid=(gridDim.x) block=(1) args=(x, out, n)", "unknown name `gridDim.x`"),
        ("@launch k grid=(n/0) block=(1) args=(x, out, n)", "k.cu:1:21: division by zero"),
        ("@launch k grid=(1) block=(4096) args=(x, out, n)", "it must be 1 to 1024"),
        ("@launch k grid=(x) block=(1) args=(x, out, n)", "is a pointer or a structure"),
        ("@launch k grid=(1) block=(1) args=(out, x, n)", "no launch takes the output `out`"),
        ("@launch k grid=(1) block=(1) args=(labels, out, n)", "`labels` holds long long in the"),
        ("@launch k grid=(1) block=(1) args=(x, out, x)", "but gets the array `x`"),
        ("@requires n > 3", "no `// @launch"),
    ],
)
def test_a_wrong_directive_is_one_line(directive: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        made(tmp_path, f"// {directive}\n{KERNEL}")
    assert told in str(refused.value)
    assert str(refused.value).startswith("k.cu")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (SCALE_CU + "int main() { return 0; }\n", "has a `main` of its own"),
        (SCALE_CU + "void launch_kernels() {}\n", "uses the name launch_kernels"),
        (f"#define n 200\n{SCALE_CU.replace('int n', 'int m')}", "has a macro `n`"),
        (f"// @tune T = 1, 2\n{SCALE_CU}", "`@tune` is for rewrites"),
        (f"// @requires n > 1\n{SCALE_CU}", "`@requires` is for rewrites"),
    ],
)
def test_what_a_source_may_not_hold(source: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        made(tmp_path, source)


def test_an_instance_that_is_opted_in_is_named(tmp_path: Path) -> None:
    launch = "// @launch k grid=(1) block=(1) smem=50000 args=(x, out, n)"
    with pytest.raises(InputError, match="write its template arguments, `@launch k<"):
        made(tmp_path, f"{launch}\ntemplate <class T> {KERNEL.replace('float*', 'T*')}")


def test_names_that_cannot_be_used(tmp_path: Path) -> None:
    twice = problem(OUT, arrays=(X, X))
    with pytest.raises(InputError, match="two values named `x`"):
        made(tmp_path, SCALE_CU, twice)
    word = X.model_copy(update={"name": "this"})
    with pytest.raises(InputError, match="`this` means something else in CUDA"):
        made(tmp_path, SCALE_CU.replace("(x,", "(this,"), problem(OUT, arrays=(word,)))


def test_what_a_run_wrote_is_not_taken_for_a_source(tmp_path: Path) -> None:
    home = without_main(made(tmp_path, SCALE_CU)).main.text
    with pytest.raises(InputError, match="holds the launches that cudaops wrote"):
        made(tmp_path, home)
