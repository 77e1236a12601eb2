"""Thread block clusters: what a rewrite may say, what is read of it, and which grids fit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.cuda.devices import device
from cudaops.domain.base import Dim3
from cudaops.domain.program import Kernel, Program, SourceFile
from cudaops.domain.workload import Workload
from cudaops.errors import InputError, PlanError
from cudaops.program.clusters import (
    authors_cluster,
    blocks_of,
    closed,
    cluster_grid,
    cluster_number,
    kernel_clusters,
)
from cudaops.program.front_end import kernel_form
from cudaops.program.hygiene import check_preprocessed, check_source
from cudaops.program.hygiene_preprocessed import CandidateText
from cudaops.program.parse import parse_files
from cudaops.program.plans import baseline_plan, make_rewrite, resolve
from cudaops.program.reroute import rerouted_files
from cudaops.program.splice import splice, spliced_rewrite
from cudaops.program.syntax import NotUnderstood

CheckCpp = Callable[[dict[str, str], str], str]

BODY = " fast(const float* A, const float* B, float* C, int N) { C[N] = A[N] * B[N]; }\n"
PLAN = "// @launch fast grid=(ceil_div(N, 16), 6) block=(16) args=(A, B, C, N)\n"

CLEAN = {
    "three": "__global__ void __cluster_dims__(2, 2, 2)",
    "one": "__global__ void __cluster_dims__(8)",
    "before": "__cluster_dims__(2, 1) __launch_bounds__(64) __global__ void",
    "behind": "__global__ void __launch_bounds__(64, 2) __cluster_dims__(2)",
    "of a template": "template <int T> __global__ void __launch_bounds__(T) __cluster_dims__(2)",
    "tuned": "// @tune PAIR = 1, 2, 4\n__global__ void __cluster_dims__(PAIR, 2)",
    "at times too many": "// @tune PAIR = 4, 8\n__global__ void __cluster_dims__(2, PAIR)",
    "never compiled": "#if 0\n__cluster_dims__(99)\n#endif\n__global__ void",
}


@pytest.mark.parametrize("case", CLEAN)
def test_what_a_rewrite_may_say(case: str) -> None:
    assert check_source(PLAN + CLEAN[case] + BODY) == ()


NUMBERS = "takes one to three positive integers or @tune names"
PLACE = "stands in the head of a `__global__` function"
REFUSED = {
    "expression": ("__global__ void __cluster_dims__(1 + 1)", NUMBERS),
    "zero": ("__global__ void __cluster_dims__(2, 0)", NUMBERS),
    "none": ("__global__ void __cluster_dims__()", NUMBERS),
    "four": ("__global__ void __cluster_dims__(1, 1, 1, 2)", NUMBERS),
    "macro": ("#define PAIR 2\n__global__ void __cluster_dims__(PAIR)", NUMBERS),
    "constant": ("constexpr int PAIR = 2;\n__global__ void __cluster_dims__(PAIR)", NUMBERS),
    "template": ("template <int T> __global__ void __cluster_dims__(T)", NUMBERS),
    "sixteen": ("__global__ void __cluster_dims__(4, 4)", "a cluster of 16 blocks"),
    "always too many": (
        "// @tune PAIR = 3, 4\n__global__ void __cluster_dims__(PAIR, PAIR)",
        "a cluster of 9 blocks: devices have clusters of at most 8",
    ),
    "in a macro": ("#define PAIRED __cluster_dims__(2)\n__global__ void PAIRED", PLACE),
    "of a device function": ("__cluster_dims__(2) __device__ void f() { }\n__global__ void", PLACE),
    "of a declaration": ("__global__ void __cluster_dims__(2) j(int);\n__global__ void", PLACE),
    "of a type": ("struct __cluster_dims__(2) S { };\n__global__ void", PLACE),
    "in two branches": (
        "__global__ void\n#ifdef X\n__cluster_dims__(2)\n#else\n__cluster_dims__(4)\n#endif\n",
        "every kernel `fast` has one and the same",
    ),
    "twice": ("__global__ void __cluster_dims__(2) __cluster_dims__(2)", "every kernel `fast`"),
    "overloads": (
        "__global__ void fast(int) { }\n__global__ void __cluster_dims__(2)",
        "every kernel `fast` has one and the same",
    ),
    "specialised": (
        "template <int T> __global__ void __cluster_dims__(2) fast() { }\n__global__ void",
        "every kernel `fast` has one and the same",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_may_not(case: str) -> None:
    head, message = REFUSED[case]
    found = check_source(PLAN + head + BODY)
    assert any(message in line for line in found), found


def test_a_device_must_have_them() -> None:
    text = PLAN + "__global__ void __cluster_dims__(2)" + BODY
    assert check_source(text, device=device("H100")) == ()
    assert check_source(text, device=device("A10")) == (
        "line 2: thread block clusters need compute capability 9.0; A10 has 8.6",
    )
    assert check_source(PLAN + "__global__ void" + BODY, device=device("A10")) == ()


def preprocessed(text: str) -> CandidateText:
    return CandidateText(text, tuple(range(1, text.count("\n") + 2)))


def test_every_compiler_must_read_the_same() -> None:
    text = preprocessed("__global__ void __cluster_dims__(2, 1, 1)" + BODY)
    pair = Dim3(x=2)
    assert check_preprocessed(text, clusters={"fast": pair}) == ((), ())
    for written, said in (({}, "none as written"), ({"fast": Dim3(x=4)}, "(4,1,1) as written")):
        (line,) = check_preprocessed(text, clusters=written).refused
        assert line.startswith("line 1: the cluster of `fast` is (2,1,1) to this compiler")
        assert line.endswith(said)
    plain = preprocessed("__global__ void" + BODY)
    (line,) = check_preprocessed(plain, clusters={"fast": pair}).refused
    assert "is none to this compiler" in line
    unread = preprocessed("__global__ void __cluster_dims__(PAIR)" + BODY)
    assert NUMBERS in check_preprocessed(unread).refused[0]


def test_clusters_of_a_text() -> None:
    text = (
        "__global__ void __cluster_dims__(PAIR, 2) a() { }\n"
        "namespace n { template <int T> __global__ void __cluster_dims__(3) b() { } }\n"
        "__global__ void c() { }\n"
    )
    assert kernel_clusters(text, {"PAIR": 4}) == {"a": Dim3(x=4, y=2), "b": Dim3(x=3)}
    with pytest.raises(PlanError, match=r"1:17: a cluster \(8,2,1\) of `a` has 16 blocks"):
        kernel_clusters(text, {"PAIR": 8})
    with pytest.raises(PlanError, match=r"1:17: `__cluster_dims__\(PAIR, 2\)` is no cluster"):
        kernel_clusters(text, {})


def test_a_grid_holds_whole_clusters(naive_kernel: Kernel, workload: Workload) -> None:
    def grid(head: str, **values: int) -> Dim3 | None:
        rewrite = make_rewrite(PLAN + head + BODY, "user", "t", "w").tuned_with(values)
        return resolve(rewrite, naive_kernel, workload).launches[0].cluster

    tuned = "// @tune PAIR = 2, 5\n__global__ void __cluster_dims__(1, PAIR)"
    assert grid(tuned) == Dim3(y=2)
    assert grid("__global__ void") is None
    with pytest.raises(PlanError, match=r"1:12: grid \(\d+,6,1\) is no multiple of the cluster"):
        grid(tuned, PAIR=5)
    assert baseline_plan(workload).launches[0].cluster is None


def test_blocks_with_the_rest_of_their_clusters() -> None:
    grid, square = Dim3(x=4, y=4, z=2), Dim3(x=2, y=2)
    assert closed((5, 31, 0), grid, square) == (0, 1, 4, 5, 26, 27, 30, 31)
    assert closed((5, 5), grid, None) == (5,)
    assert closed((7,), grid, Dim3(z=2)) == (7, 23)
    assert cluster_grid(grid, square) == Dim3(x=2, y=2, z=2)
    assert cluster_number(13, grid, square) == 2
    assert blocks_of(7, grid, square) == (26, 27, 30, 31)


def parse(text: str, header: str = "") -> Program:
    files = (SourceFile(path="main.cu", text=text), SourceFile(path="sizes.h", text=header))
    return parse_files("main", files if header else files[:1])


def test_an_authors_kernel_is_launched_with_its_clusters() -> None:
    text = (
        '#include "sizes.h"\n#define TWO 2\n'
        "__global__ void __cluster_dims__(TWO, MANY / 2) k(float* p) { }\n"
        "#undef TWO\n#define TWO 5\n"
        "__global__ void j(float* p) { }\n"
        "int main() { k<<<4, 32>>>(0); j<<<4, 32>>>(0); }\n"
    )
    program = parse(text, "constexpr int MANY = 8;\n")
    assert authors_cluster(program, program.kernel("k")) == Dim3(x=2, y=4)
    rerouted = rerouted_files(program)["main.cu"]
    assert 'launch(0, "k", 4, 32).clusters(2, 4, 1).of(k)(0)' in rerouted
    assert 'launch(1, "j", 4, 32).of(j)(0)' in rerouted
    assert ".clusters" not in rerouted_files(program, dialect="cuda")["main.cu"]


def test_a_cluster_that_is_no_number_is_not_run_as_if_it_were_none() -> None:
    head = "template <int T> __global__ void __cluster_dims__(T) k(float* p) { }\n"
    program = parse(head + "int main() { k<2><<<4, 32>>>(0); }\n")
    with pytest.raises(InputError, match="clusters of `T` blocks, which is no number"):
        rerouted_files(program)


def test_no_transformation_takes_such_a_kernel_for_another_one() -> None:
    head = "__global__ void __cluster_dims__(2)"
    program = parse(f"{head} k(float* p) {{ p[0] = 1; }}\nint main() {{ k<<<2, 1>>>(0); }}\n")
    with pytest.raises(NotUnderstood, match="thread block clusters"):
        kernel_form(program, program.kernel("k"))


REWRITE = """// @tune PAIR = 2, 4
// @launch twice<float> grid=(ceil_div(n, 64)) block=(64) args=(p, n)
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
template <typename T>
__global__ void __cluster_dims__(PAIR) __launch_bounds__(64) twice(T* p, int n) {
    __shared__ T held[64];
    cg::cluster_group cluster = cg::this_cluster();
    held[threadIdx.x] = 0;
    cluster.sync();
    T* there = cluster.map_shared_rank(held, 0);
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) p[i] = 2 * p[i] + there[threadIdx.x];
    cluster.sync();
}
"""
PROGRAM = """#define PAIR 7
__global__ void twice(float* p, int n) { p[threadIdx.x] *= n; }
int main() { twice<<<4, 64>>>(0, 256); }
"""


def spliced(program: Program) -> Program:
    rewrite = make_rewrite(REWRITE, "user", "t", "w").tuned_with({"PAIR": 4})
    return splice(program, "twice", rewrite)


def test_the_wrapper_asks_for_whole_clusters() -> None:
    program = parse(PROGRAM)
    after = spliced(program)
    assert "if (cudaops_grid0[0] % 4) cudaops_ok = false;" in after.main.text
    launched = rerouted_files(after)["main.cu"]
    (line,) = [x for x in launched.splitlines() if "cudaops_dim3(cudaops_grid0)" in x]
    assert "cudaops_stream).clusters(4, 1, 1).of(" in line
    assert launched.count(".clusters") == 1, "the author's kernel of the same name has none"

    again = spliced_rewrite(after, lambda rewrite: splice(program, "twice", rewrite))
    assert again is not None
    assert again.values() == {"PAIR": 4}


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("arches", "kernels"), [(("86",), 1), (("90",), 2), (("80", "90"), 1), (("90", "100"), 2)]
)
def test_where_there_are_no_clusters_the_authors_kernel_is_compiled(
    arches: tuple[str, ...], kernels: int, tmp_path: Path
) -> None:
    (tmp_path / "main.cu").write_text(spliced(parse(PROGRAM)).main.text)
    flags = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in arches]
    command = ["nvcc", *flags, "-Xptxas", "-v", "-c", "-o", "main.o", "main.cu"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Compiling entry function") == kernels * len(arches)
