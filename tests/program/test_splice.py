"""Rewrites in the author's file: what changes, what does not, and that nvcc and g++ take it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.domain.execution import ProgramRan
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program, parse_files
from cudaops.program.patch import unified_patch
from cudaops.program.plans import make_rewrite
from cudaops.program.reroute import rerouted_files
from cudaops.program.splice import splice, spliced_rewrite
from tests.lanes import mostly_deep

CheckCpp = Callable[[dict[str, str], str], str]
DATA = Path(__file__).parent.parent / "data"

TILED = (DATA / "rewrites" / "naive_matmul.cu").read_text()

KERNELS = {
    "gemm_header": "dense_layer",
    "vector_add": "add",
    "tiled_good": "blocked",
    "struct_argument": "apply",
    "nt_product": "similarity",
    "tn_alpha_beta": "gram",
    "helper_macros": "saxpy",
    "stencil": "blur",
    "reduction": "block_sums",
    "indirect": "rotate",
}
"""Program to the kernel that its rewrite in data/rewrites replaces."""


def rewrite_of(text: str) -> Rewrite:
    return make_rewrite(text, "recipe:test", "a title\\\nin two lines", "why")


def rewrite_text(name: str) -> str:
    return (DATA / "rewrites" / f"{name}.cu").read_text()


def spliced(name: str) -> tuple[Program, Program]:
    program = load_program(DATA / "programs" / f"{name}.cu")
    return program, splice(program, KERNELS[name], rewrite_of(rewrite_text(name)))


def without_insertion(text: str) -> str:
    """The spliced text with the inserted block cut out."""
    start = text.index("// ---- cudaops: ")
    end = text.index("// ---- cudaops: end", start) + len("// ---- cudaops: end\n")
    return text[:start] + text[end:]


def nvcc(program: Program, folder: Path) -> str:
    for file in program.files:
        (folder / file.path).write_text(file.text)
    for mode in (["-O3", "-cubin", "-o", "x.cubin"], ["-O0", "-c", "-o", "x.o"]):
        command = ["nvcc", "-arch=sm_86", *mode, program.main_path]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            return done.stderr
    return ""


def test_a_tuned_value_that_somebody_removed_is_named(naive: Program) -> None:
    rewrite = rewrite_of(rewrite_text("naive_matmul"))
    tuned = rewrite.plan.tune[0].name
    text = splice(naive, "naive_matmul", rewrite).main.text
    kept = "".join(x for x in text.splitlines(True) if not x.startswith(f"#define {tuned} "))
    assert kept != text
    files = (naive.main.model_copy(update={"text": kept}), *naive.files[1:])
    program = parse_files(naive.root_name, files, naive.system_includes)
    with pytest.raises(InputError, match=f"lacks `#define {tuned} "):
        spliced_rewrite(program, lambda r: splice(naive, "naive_matmul", r))


def test_main_is_byte_identical_apart_from_the_launches(naive: Program) -> None:
    after = splice(naive, "naive_matmul", rewrite_of(TILED))
    old = naive.main.text[naive.main.text.index("int main()") :]
    new = after.main.text[after.main.text.index("int main()") :]
    call = "cudaops_launch_naive_matmul(grid, block, 0, 0, dA,dB,dC,N)"
    assert new == old.replace("naive_matmul<<<grid,block>>>(dA,dB,dC,N)", call)
    assert new.count(call) == 2


@pytest.mark.parametrize("name", KERNELS)
def test_the_rewrite_is_found_again(name: str) -> None:
    program = load_program(DATA / "programs" / f"{name}.cu")
    first = rewrite_of(rewrite_text(name))
    tuned = first.tuned_with({t.name: t.values[-1] for t in first.plan.tune})

    def again(rewrite: Rewrite) -> Program:
        return splice(program, KERNELS[name], rewrite)

    found = spliced_rewrite(again(tuned), again)
    assert found is not None
    assert found.values() == tuned.values()
    steps = [
        [(step.kernel, step.grid, step.block, step.smem, step.args) for step in r.plan.launches]
        for r in (found, tuned)
    ]
    assert steps[0] == steps[1]
    assert found.plan.requires == tuned.plan.requires
    assert again(found).main.text.splitlines()[-1] == again(tuned).main.text.splitlines()[-1]
    assert spliced_rewrite(program, again) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int main(", "static int more;\nint main("),
        ("cudaops_launch_naive_matmul(grid, block", "cudaops_launch_naive_matmul(block, grid"),
        ("__syncthreads();", ""),
        ("static inline bool cudaops_fits(", "static inline bool fits("),
    ],
)
def test_a_block_that_somebody_changed_is_refused(naive: Program, old: str, new: str) -> None:
    def again(rewrite: Rewrite) -> Program:
        return splice(naive, "naive_matmul", rewrite)

    text = again(rewrite_of(TILED)).main.text
    assert old in text
    changed = text.replace(old, new, 1)
    files = (naive.main.model_copy(update={"text": changed}), *naive.files[1:])
    program = parse_files(naive.root_name, files, naive.system_includes)
    if old == "__syncthreads();":  # another kernel, and judged as such
        assert spliced_rewrite(program, again) is not None
    else:
        with pytest.raises(InputError, match="as cudaops wrote it"):
            spliced_rewrite(program, again)


def test_everything_else_is_untouched(naive: Program) -> None:
    after = splice(naive, "naive_matmul", rewrite_of(TILED))
    lines = naive.main.text.split("\n")
    kept = without_insertion(after.main.text).split("\n")
    changed = [(a, b) for a, b in zip(lines, kept, strict=True) if a != b]
    assert len(changed) == 2
    assert all("<<<" in a for a, _ in changed)
    assert "// @launch tiled<TILE, PAD>" in after.main.text


@pytest.mark.parametrize("name", KERNELS)
def test_program_is_a_program_again(name: str, check_cpp: CheckCpp) -> None:
    before, after = spliced(name)
    kernel = KERNELS[name]
    assert len(after.kernels) > len(before.kernels)
    assert f"cudaops_launch_{kernel}(" in "".join(f.text for f in after.files)
    assert check_cpp(rerouted_files(after), after.main_path) == ""
    headers = {f.path: f.text for f in before.files[1:]}
    assert headers == {f.path: f.text for f in after.files[1:]}


@pytest.mark.nvcc
@pytest.mark.parametrize("name", KERNELS)
def test_nvcc_takes_it(name: str, tmp_path: Path) -> None:
    assert nvcc(spliced(name)[1], tmp_path) == ""


@pytest.mark.nvcc
def test_nvcc_takes_scratch_tune_and_opt_in(naive: Program, tmp_path: Path) -> None:
    after = splice(naive, "naive_matmul", rewrite_of(TILED).tuned_with({"TILE": 32}))
    assert "tiled<32, 1><<<" in after.main.text
    assert nvcc(after, tmp_path) == ""


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "path", mostly_deep(sorted((DATA / "programs").glob("*.cu")), 4), ids=lambda p: p.stem
)
def test_nvcc_takes_the_programs_themselves(path: Path, tmp_path: Path) -> None:
    if path.stem in ("no_kernel", "no_main"):
        with pytest.raises(InputError):
            load_program(path)
        return
    errors = nvcc(load_program(path), tmp_path)
    assert (errors == "") == (path.stem != "syntax_error")


DEDUCED = """
// @launch fast<float> grid=(gridDim.x) block=(64) args=(samples, out, n)
template <typename T> __global__ void fast(const T* s, T* o, int n) {}
"""


def test_deduced_template_guards_the_captured_instance(check_cpp: CheckCpp) -> None:
    program = load_program(DATA / "programs" / "namespace_template.cu")
    after = splice(program, "energy", rewrite_of(DEDUCED), "signal::energy<float>")
    text = after.main.text
    assert "signal::cudaops_launch_energy((n + 63) / 64, 64, 0, 0, a, b, n)" in text
    assert "if constexpr (cudaops_energy::cudaops_same<T, float>::value_) {" in text
    assert check_cpp(rerouted_files(after), after.main_path) == ""


@pytest.mark.nvcc
def test_nvcc_takes_the_guard(tmp_path: Path) -> None:
    program = load_program(DATA / "programs" / "namespace_template.cu")
    after = splice(program, "energy", rewrite_of(DEDUCED), "signal::energy<float>")
    assert nvcc(after, tmp_path) == ""


def parse(text: str) -> Program:
    return parse_files("main", (SourceFile(path="main.cu", text=text),))


TWO_INSTANCES = (
    "template <int T> __global__ void k(int* p) {}\n"
    "int main() { k<32><<<1, 32>>>(p); k< 64 ><<<1, 64>>>(p); }\n"
)
ONE = "// @launch q grid=(1) block=(1) args=(p)\n__global__ void q(int* p) {}\n"


def test_other_instances_keep_the_baseline() -> None:
    after = splice(parse(TWO_INSTANCES), "k", rewrite_of(ONE), "k<64>")
    main = after.main.text[after.main.text.index("int main()") :]
    assert "k<32><<<1, 32>>>(p)" in main
    assert "cudaops_launch_k< 64 >(1, 64, 0, 0, p)" in main


@pytest.mark.parametrize(
    ("body", "argument", "callee"),
    [
        ("using Traits = traits<T>;", "Traits", "k<traits<float> >"),
        ("typedef traits<T> Traits;", "Traits", "k<traits<float> >"),
    ],
)
def test_a_name_of_a_template_s_own_body_stands_for_more_than_one_instance(
    check_cpp: CheckCpp, body: str, argument: str, callee: str
) -> None:
    program = parse(
        "template <typename T> struct traits {};\n"
        "template <typename T> __global__ void k(int* p) {}\n"
        f"template <typename T> void go(int* p) {{ {body} k<{argument}><<<1, 1>>>(p); }}\n"
        "int main() { go<float>(0); go<int>(0); }\n"
    )
    after = splice(program, "k", rewrite_of(ONE), callee)
    assert "cudaops_same<T, traits<float>>::value_" in after.main.text
    assert check_cpp(rerouted_files(after), "main.cu") == ""


def test_an_ambiguous_instance_is_asked_for() -> None:
    with pytest.raises(InputError, match="say which one"):
        splice(parse(TWO_INSTANCES), "k", rewrite_of(ONE))


HANDED_OVER = """
__global__ void k(int* p, int n) { p[0] = n; }
__global__ void other(int* p, int n) { p[0] = n; }
MACRO
int main() {
    int *p, n = 3, blocks = 1;
    USES
}
"""
WRITTEN_OUT = [
    ("#define RUN(f, b) f<<<b, 32>>>(p, n)", "RUN(k, 2);", "(2, 32, 0, 0, p, n);"),
    (
        "#define RUN(b, f, ...) do { f<<<b, 32>>>(__VA_ARGS__); } while (0)",
        "if (n) RUN(blocks, k, p, (n, n + 1)); else RUN(blocks, other, p, n);",
        (
            "if (n) do { cudaops_launch_k(blocks, 32, 0, 0, p, (n, n + 1)); } while (0); "
            "else RUN(blocks, other, p, n);"
        ),
    ),
    (
        "#define RUN(f, g) f<<<1, 32>>>(p, n); \\\n    g<<<1, 32>>>(p, n)",
        "RUN(other, k); RUN(other, other);",
        ("other<<<1, 32>>>(p, n);\n    cudaops_launch_k(1, 32, 0, 0, p, n); RUN(other, other);"),
    ),
    (
        '#define RUN(f, ...) puts(#f " " # __VA_ARGS__); f<<<1, 32>>>(__VA_ARGS__)',
        "RUN(k, p,  n + '\"'); RUN(other, p, n);",
        (
            'puts("k" " " "p, n + \'\\"\'"); cudaops_launch_k(1, 32, 0, 0, p,  n + \'"\'); '
            "RUN(other, p, n);"
        ),
    ),
    (
        "#define RUN(f) f<<<1, 32>>>(p, n)\n#define TWICE(x) x; x",
        "TWICE(RUN(k)); RUN(other);",
        "TWICE(cudaops_launch_k(1, 32, 0, 0, p, n)); RUN(other);",
    ),
    (
        "#define RUN(f) f<<<1, 32>>>(p, n)\n#define ID(f) f",
        "RUN(ID(k)); RUN(k);",
        "ID(k)<<<1, 32>>>(p, n); cudaops_launch_k(1, 32, 0, 0, p, n);",
    ),
    (
        "#define RUN(f) f<<<1, 32>>>(p, n)\n#define AND(g, x) g<<<2, 32>>>(p, n); x",
        "AND(other, RUN(k)); AND(k, RUN(k));",
        (
            "AND(other, cudaops_launch_k(1, 32, 0, 0, p, n)); "
            "cudaops_launch_k(2, 32, 0, 0, p, n); RUN(k);"
        ),
    ),
]


@pytest.mark.parametrize(("macro", "uses", "after"), WRITTEN_OUT)
def test_a_macro_that_launches_what_it_is_handed_is_written_out(
    macro: str, uses: str, after: str
) -> None:
    text = HANDED_OVER.replace("MACRO", macro).replace("USES", uses)
    found = splice(parse(text), "k", rewrite_of(ONE)).main.text
    assert after in found
    assert macro in found


def test_a_macro_of_a_header_is_written_out_where_it_is_used() -> None:
    header = SourceFile(path="run.h", text="#define RUN(f, b) f<<<b, 32>>>(p, n)\n")
    text = HANDED_OVER.replace("MACRO", '#include "run.h"').replace("USES", "RUN(k, 7);")
    program = parse_files("main", (SourceFile(path="main.cu", text=text), header))
    found = splice(program, "k", rewrite_of(ONE))
    assert "cudaops_launch_k(7, 32, 0, 0, p, n);" in found.main.text
    assert found.file("run.h").text == header.text


def test_a_use_of_a_macro_that_pastes_the_kernels_name_is_written_out() -> None:
    macro = "#define RUN(f, b) ot ## f<<<b, 16>>>(p, n); k<<<b, 32>>>(p, n)"
    text = HANDED_OVER.replace("MACRO", macro).replace("USES", "RUN(her, 7); RUN(her, 8);")
    program = parse(text)
    assert {site.kernel for site in program.launches} == {"other", "k"}
    found = splice(program, "other", rewrite_of(ONE)).main.text
    assert "cudaops_launch_other(7, 16, 0, 0, p, n); k<<<7, 32>>>(p, n); cudaops" in found
    assert macro in found


def test_directives_between_the_brackets_of_a_launch_stay() -> None:
    text = HANDED_OVER.replace("MACRO", "").replace(
        "USES", "k<<<2,\n#ifdef WIDE\n64\n#else\n32, 0\n#endif\n>>>(p, n);"
    )
    found = splice(parse(text), "k", rewrite_of(ONE)).main.text
    assert "cudaops_launch_k(grid_, block_, smem_, stream_, given_...); }; }(2,\n#ifdef" in found
    assert "#endif\n)(p, n);" in found


@pytest.mark.parametrize(
    "macro",
    [
        "#define RUN(f, b) f<<<b, 32>>>(p, n)\n#undef RUN\n#define RUN(f, b) f<<<b, 64>>>(p, n)",
        "#define RUN(f, b, c) f<<<b, 32>>>(p, n)",
        "#define RUN(f, more...) f<<<more, 32>>>(p, n)",
    ],
)
def test_an_indirect_launch_cannot_be_replaced(macro: str) -> None:
    text = HANDED_OVER.replace("MACRO", macro).replace("USES", "RUN(k, 1);")
    with pytest.raises(InputError, match="names it directly"):
        splice(parse(text), "k", rewrite_of(ONE))


@pytest.mark.parametrize(
    "function",
    [
        "static void run(void (*f)(int*, int), int b, int* p, int n) { f<<<b, 32>>>(p, n); }",
        "template <class F> void run(F f, int b, int* p, int n) { f << <b, 32>> >(p, n); }",
    ],
)
def test_a_launch_through_a_parameter_asks_which_kernel_it_is(
    function: str, check_cpp: CheckCpp
) -> None:
    text = HANDED_OVER.replace("MACRO", function).replace("USES", "run(k, 1, p, n);")
    after = splice(parse(text), "k", rewrite_of(ONE))
    assert "cudaops_dispatch_k(f, b, 32, 0, 0, p, n);" in after.main.text
    assert "if (kernel_ == &::k)" in after.main.text
    assert check_cpp(rerouted_files(after), "main.cu") == ""


def test_kernel_after_its_launch_and_linkage_block(check_cpp: CheckCpp) -> None:
    late = parse("__global__ void k(int* p, int);\nvoid go(int* p) { k<<<1, 1>>>(p, 2); }\n"
                 "__global__ void k(int* p, int) { }\nint main() { go(0); }\n")  # fmt: skip
    after = splice(late, "k", rewrite_of(ONE))
    text = after.main.text
    assert text.index("cudaops_launch_k(\n") < text.index("void go(")
    assert check_cpp(rerouted_files(after), "main.cu") == ""
    linked = parse(
        'extern "C" {\n__global__ void k(int* p) { }\n}\nint main() { k<<<1, 1>>>(0); }\n'
    )
    after = splice(linked, "k", rewrite_of(ONE))
    assert 'extern "C++" {' in after.main.text
    assert check_cpp(rerouted_files(after), "main.cu") == ""


def test_code_after_the_kernel_on_its_line_is_no_comment(check_cpp: CheckCpp) -> None:
    program = parse("__global__ void k(int* p) { } int main() { k<<<1, 1>>>(0); }")
    after = splice(program, "k", rewrite_of(ONE))
    assert "\n int main() { cudaops_launch_k(1, 1, 0, 0, 0); }" in after.main.text
    assert check_cpp(rerouted_files(after), "main.cu") == ""


def test_missing_includes_are_added_once(naive: Program) -> None:
    text = splice(naive, "naive_matmul", rewrite_of(TILED)).main.text
    assert text.count("#include <cuda_fp16.h>") == 1
    assert text.count("#include <cuda_runtime.h>") == 1


@pytest.mark.parametrize("name", ["gemm_header", "vector_add"])
@pytest.mark.parametrize("ending", ["\n", "", "\r\n"])
def test_patch_applies(name: str, ending: str, tmp_path: Path) -> None:
    before, after = spliced(name)
    files = tuple(
        SourceFile(path=f.path, text=f.text.rstrip("\n").replace("\n", ending or "\n") + ending)
        for f in before.files
    )
    before = parse_files(name, files)
    after = splice(before, KERNELS[name], rewrite_of(rewrite_text(name)))
    for file in before.files:
        (tmp_path / file.path).write_bytes(file.text.encode())
    (tmp_path / "best.patch").write_bytes(unified_patch(before, after).encode())
    command = (
        ["patch", "-p1", "--binary", "-i", "best.patch"]
        if shutil.which("patch")
        else ["git", "apply", "best.patch"]
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for file in after.files:
        assert (tmp_path / file.path).read_bytes().decode() == file.text


def test_patch_of_nothing_is_empty(naive: Program) -> None:
    assert unified_patch(naive, naive) == ""


def small(program: Program) -> Program:
    text = program.main.text.replace("const int N = 1024;", "const int N = 64;")
    return parse_files("naive_matmul", (SourceFile(path="naive_matmul.cu", text=text),))


WRONG = TILED.replace("C[r * N + c] = sum;", "C[r * N + c] = 2.0f * sum;")


COUNTS = """
#include <cstdio>
#define T 4
#define A 5
#define B 6
#define F 7
#define I 8
#define a 9
#define b 10
#define p 11
#define grid 12
#define block 13
#define value 14
__global__ void count(const unsigned char* bytes, unsigned* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[bytes[i] % T], 1u);
}
int main() {
    unsigned char* bytes;
    unsigned *counts, found[4];
    cudaMalloc(&bytes, 64);
    cudaMalloc(&counts, 16);
    cudaMemset(bytes, 1, 64);
    cudaMemset(counts, 0, 16);
    count<<<2, 32>>>(bytes, counts, 60);
    cudaMemcpy(found, counts, 16, cudaMemcpyDeviceToHost);
    printf("%u %u\\n", found[0], found[1]);
}
"""
NONE_COUNTED = """// @requires REQUIRED
// @scratch spare bytes=4 * min(n, 4)
// @launch none grid=(ceil_div(n, 60)) block=(32) args=(counts, spare)
__global__ void none(unsigned* counts, int* spare) { counts[0] = 7; spare[0] = 1; }
"""


@pytest.mark.parametrize(
    ("required", "printed"),
    [
        ("bytes != counts", "7 0"),
        ("bytes + 4 != counts - 1 && counts != nullptr", "7 0"),
        ("counts == bytes", "0 60"),
        ("(n > 4 ? counts : counts + 1) != bytes", "7 0"),
        ("nullptr == counts", "0 60"),
    ],
)
def test_pointers_to_different_types_are_compared(
    required: str, printed: str, kernels: Path
) -> None:
    """In the author's file, whatever its macros are called."""
    program = parse_files("counts", (SourceFile(path="counts.cu", text=COUNTS),))
    after = splice(program, "count", rewrite_of(NONE_COUNTED.replace("REQUIRED", required)))
    ran = CpuExecutor("A10", kernels).run_program(after, (), 60.0)
    assert isinstance(ran, ProgramRan), ran
    assert ran.stdout.strip() == printed


@pytest.mark.parametrize(
    ("text", "requires", "same"),
    [
        (TILED, "N % 4 == 0", True),
        (WRONG, "N % 4 == 0", False),
        (WRONG, "N % 4 == 1", True),
        (WRONG, "N / (N - 64) > 0", True),
        (WRONG, "aligned(A, 16)", False),
        (WRONG, "aligned(A + 1, 16)", True),
    ],
    ids=[
        "right",
        "wrong",
        "wrong but not required",
        "wrong but not computable",
        "wrong and aligned",
        "wrong but not aligned",
    ],
)
def test_what_a_spliced_program_prints(
    naive: Program, text: str, requires: str, same: bool, kernels: Path
) -> None:
    """The rewrite runs where `@requires` holds, the baseline where it fails or cannot be told."""
    executor = CpuExecutor("A10", kernels)
    before = small(naive)
    text = text.replace("// @scratch spare", f"// @requires {requires}\n// @scratch spare")
    after = splice(before, "naive_matmul", rewrite_of(text))
    expected, found = (executor.run_program(p, (), 60.0) for p in (before, after))
    assert isinstance(expected, ProgramRan)
    assert isinstance(found, ProgramRan), found
    assert (found.stdout == expected.stdout) == same
    assert found.exit_code == 0
