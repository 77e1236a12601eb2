"""What intake sees in programs of many shapes, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from clang.cindex import Cursor, CursorKind, TypeKind

from cudaops.domain.program import LaunchSite, Program, SourceFile
from cudaops.errors import InputError
from cudaops.program.clang_child import functions, qualified
from cudaops.program.clang_units import Clang
from cudaops.program.constants import integer_constants
from cudaops.program.lexing import byte_text
from cudaops.program.outline import outline
from cudaops.program.parse import load_program, parse_files, require_runnable
from cudaops.program.plans import make_rewrite
from cudaops.program.splice import splice

DATA = Path(__file__).parent.parent / "data"
PROGRAMS = sorted((DATA / "programs").glob("*.cu"))
RUNNABLE = [p for p in PROGRAMS if p.stem not in ("no_main", "no_kernel")]
CALIBRATION = sorted((DATA / "calibration").glob("*.cu"))


def load(name: str) -> Program:
    return load_program(DATA / "programs" / f"{name}.cu")


def parse(text: str) -> Program:
    return parse_files("main", (SourceFile(path="main.cu", text=text),))


def only_site(program: Program) -> LaunchSite:
    (site,) = program.launches
    return site


@pytest.mark.parametrize("path", [*RUNNABLE, *CALIBRATION], ids=lambda p: p.stem)
def test_offsets_name_what_they_say(path: Path) -> None:
    program = load_program(path)
    for kernel in program.kernels:
        raw = program.file(kernel.file).text.encode()
        assert raw[kernel.start_byte : kernel.end_byte].decode() == kernel.text
        assert kernel.text.endswith("}")
        assert raw[: kernel.start_byte].count(b"\n") + 1 == kernel.first_line
    for index, site in enumerate(program.launches):
        text = program.file(site.file).text.encode()[site.start_byte : site.end_byte].decode()
        assert site.index == index
        assert text.startswith(site.callee)
        assert text.endswith(")")
        assert site.enclosing_start_byte <= site.start_byte


@pytest.fixture(scope="module")
def clang(tmp_path_factory: pytest.TempPathFactory) -> Clang:
    return Clang(tmp_path_factory.mktemp("clang"))


@pytest.mark.parametrize("path", [*RUNNABLE, *CALIBRATION], ids=lambda p: p.stem)
def test_kernels_are_those_that_clang_sees(path: Path, clang: Clang) -> None:
    program = load_program(path)
    unit = clang.parse({f.path: f.text for f in program.files}, program.main_path, None)
    seen = {
        qualified(cursor): [(p.spelling, is_pointer(p)) for p in parameters(cursor)]
        for cursor in functions(unit.cursor)
        if CursorKind.CUDAGLOBAL_ATTR in {c.kind for c in cursor.get_children()}
    }
    read = {
        k.qualified_name: [(p.name, p.is_pointer) for p in k.parameters] for k in program.kernels
    }
    assert read == seen


def parameters(function: Cursor) -> list[Cursor]:
    return [c for c in function.get_children() if c.kind == CursorKind.PARM_DECL]


def is_pointer(parameter: Cursor) -> bool:
    return bool(parameter.type.get_canonical().kind == TypeKind.POINTER)


def test_header_template_and_launch_bounds() -> None:
    program = load("gemm_header")
    assert [f.path for f in program.files] == ["gemm_header.cu", "gemm_kernel.cuh"]
    assert program.system_includes == ("cstdio", "cstdlib", "vector", "cuda_runtime.h")
    (kernel,) = program.kernels
    assert kernel.file == "gemm_kernel.cuh"
    assert kernel.template_parameters == ("int THREADS",)
    assert kernel.launch_bounds == "THREADS"
    assert [p.name for p in kernel.parameters] == [
        "weights",
        "inputs",
        "outputs",
        "rows",
        "cols",
        "inner",
    ]
    assert kernel.parameters[0].type_text == "const float *__restrict__"
    assert [(p.is_pointer, p.is_const) for p in kernel.parameters[1:4]] == [
        (True, True),
        (True, False),
        (False, False),
    ]
    site = only_site(program)
    assert (site.callee, site.template_arguments) == ("dense_layer<kThreads>", "kThreads")
    assert (site.grid, site.block, site.smem, site.stream) == ("blocks", "kThreads", None, None)


def test_geometry_shared_memory_and_stream() -> None:
    site = only_site(load("reduction"))
    assert site.smem == "(threads / 32) * sizeof(float)"
    assert site.stream == "stream"
    kernel = load("reduction").kernel("block_sums")
    assert kernel.uses_dynamic_shared


def test_braced_geometry() -> None:
    site = only_site(load("nt_product"))
    assert site.grid == "{(unsigned)(n + 15) / 16, (unsigned)(m + 7) / 8}"
    assert site.block == "{16, 8}"


def test_namespaces_and_deduced_template() -> None:
    program = load("namespace_template")
    kernel = program.kernel("signal::energy")
    assert kernel.template_parameters == ("typename T",)
    site = only_site(program)
    assert (site.kernel, site.callee, site.template_arguments) == ("energy", "signal::energy", None)


def test_constant_and_device_variables() -> None:
    program = load("stencil")
    found = {(v.name, v.space, v.type_text) for v in program.global_variables}
    assert found == {
        ("weights", "constant", "float[2 * RADIUS + 1]"),
        ("touched", "device", "int"),
    }
    assert integer_constants(program.main.text) == {"RADIUS": 4}


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("constexpr int ROWS = 4 * PIXELS;", {"ROWS": 8}),
        ("static constexpr int A = min(3, 4) * 2, B = A / (1 + 1);", {"A": 6, "B": 3}),
        ("#define TILE (PIXELS * 8)", {"TILE": 16}),
        ("const int *p = 0; constexpr int list[2] = {1, 2};", {}),
        ("constexpr int first[2] = {1, 2}, SECOND = 5;", {"SECOND": 5}),
    ],
)
def test_integer_constants_of_a_text(text: str, constants: dict[str, int]) -> None:
    """What a directive may name: products too, and each of several in one declaration."""
    assert integer_constants(text, {"PIXELS": 2}) == constants


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("__device__ const int table[2] = {1, 2};", False),
        ("static constexpr __device__ float scale = 2.0f;", False),
        ("__device__ float* const fixed = nullptr;", False),
        ("__device__ const float* moving;", True),
        ("__constant__ int counts[2];", True),
    ],
)
def test_what_nobody_can_change_is_no_state(text: str, kept: bool) -> None:
    program = parse_files("p", (SourceFile(path="p.cu", text=f"{text}\nint main() {{}}\n"),))
    assert bool(program.global_variables) == kept


def test_launches_in_macros_and_helpers() -> None:
    program = load("helper_macros")
    assert [(s.kernel, s.callee) for s in program.launches] == [
        ("fill", "kernel"),
        ("saxpy", "saxpy"),
    ]
    assert program.launches[1].stream == "stream"
    assert program.kernel("saxpy").parameters[1].type_text == "float"


def test_indirect_launches() -> None:
    program = load("indirect")
    assert [s.kernel for s in program.launches] == ["put", "put", "stride", "rotate", "rotate"]
    assert program.launches[3].smem == "64 * sizeof(int)"
    assert "dead" not in {k.name for k in program.kernels}
    assert program.kernel("rotate").uses_dynamic_shared
    assert [k.name for k in program.kernels if k.is_overloaded] == [
        "put(int*, int)", "put(int*, float)",
    ]  # fmt: skip
    assert program.limits == ()


@pytest.mark.parametrize(
    ("body", "callee", "arguments"),
    [
        ("auto f = k<4, 8>; f<<<1, 4>>>(p);", "k<4, 8>", "4, 8"),
        ("const auto* f = &k<4, 8>; f<<<1, 4>>>(p);", "k<4, 8>", "4, 8"),
        ("auto f = plain; f<<<1, 4>>>(p);", "plain", None),
        ("auto f = k<4, 8>; if (p) f = k<4, 9>; f<<<1, 4>>>(p);", "f", None),
        ("auto f = k<4, 8>; change(&f); f<<<1, 4>>>(p);", "f", None),
        ("auto f = p ? k<4, 8> : k<4, 9>; f<<<1, 4>>>(p);", "f", None),
        ("void (*f)(int*) = k<4, 8>; f<<<1, 4>>>(p);", "f", None),
        ("f<<<1, 4>>>(p); auto f = k<4, 8>;", "f", None),
    ],
)
def test_a_variable_that_is_a_kernel(
    body: str, callee: str, arguments: str | None, tmp_path: Path
) -> None:
    kernels = "template <int A, int B> __global__ void k(int* p) { *p = A + B; }\n"
    kernels += "__global__ void plain(int* p) { *p = 1; }\n"
    path = tmp_path / "program.cu"
    path.write_text(f"{kernels}int main() {{ int* p = nullptr; {body} }}\n")
    (site,) = load_program(path).launches
    assert (site.callee, site.template_arguments) == (callee, arguments)


def test_attributes_in_either_position() -> None:
    program = parse(
        "template<int N, class T = float>\n__launch_bounds__(256, 2) __global__ void a(T x[4]) {}\n"
        "static __global__ void __launch_bounds__(N) b(void) {}\n"
        'extern "C" { __attribute__((noinline)) __global__ void c(int, const S s = S{1, 2}) {} }\n'
        "void __global__ d(const float* const* table, float const* __restrict__ q) {}\n"
    )
    a, b, c, d = program.kernels
    assert (a.name, a.launch_bounds, a.template_parameters) == (
        "a",
        "256, 2",
        ("int N", "class T = float"),
    )
    assert a.parameters[0].is_pointer
    assert (b.launch_bounds, b.parameters) == ("N", ())
    assert [(p.name, p.type_text) for p in c.parameters] == [("unnamed_0", "int"), ("s", "const S")]
    assert [(p.is_pointer, p.is_const) for p in d.parameters] == [(True, True), (True, True)]


def test_what_looks_like_a_function() -> None:
    facts = outline(
        byte_text(
            "struct P make(int x) { return {}; }\nunsigned (*table[2])(int) = {f, g};\n"
            "std::function<void()> hook{nullptr};\nint last(void) { return 1; }\n"
            "struct __align__(16) Q { float x; };\nbool operator<(P a, P b) { return true; }\n"
        )
    )
    assert [(i.kind, i.name) for i in facts.items if i.kind == "function"] == [
        ("function", "make"),
        ("function", "last"),
        ("function", "operator<"),
    ]


def test_limits_in_plain_words() -> None:
    program = parse(
        "texture<float, 1> t;\n"
        '__global__ void child(int* p) { asm volatile("wgmma.fence.sync.aligned;"); }\n'
        "__global__ void parent(int* p) { child<<<1, 1>>>(p); }\n"
        "void go(CUfunction f, void** a) { cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, a, 0); }\n"
        "#define MAKE(name, ...) __global__ void name(int* p __VA_OPT__(,) __VA_ARGS__) { }\n"
        "template <class K> void run(K kernel) { kernel<<<1, 1>>>(nullptr); }\n"
    )
    text = "\n".join(program.limits)
    for words in (
        "main.cu:1: texture references",
        "main.cu:2: inline PTX",
        "main.cu:3: a launch from the device",
        "main.cu:4: a launch through the driver API",
        "macro `MAKE` defines a kernel",
    ):
        assert words in text
    assert [s.callee for s in program.launches] == ["kernel"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thrust::sort(thrust::device, p, p + n);", "kernels of the library thrust"),
        ("k<<<1, 1>>>(thrust::raw_pointer_cast(p)); thrust::fill(p, q, 0);", "thrust"),
        ("cub::DeviceScan::ExclusiveSum(t, b, p, q, n);", "kernels of the library cub"),
        ("k<<<1, 1>>>(thrust::raw_pointer_cast(p));", ""),
        ("thrust::pair<int, int> both; thrust::tie(a, b) = both;", ""),
        ("using Sum = cub::BlockReduce<int, 64>;", ""),
        ('unsigned c; asm volatile("cpuid" : "=c"(c));', ""),
    ],
)
def test_of_libraries_what_launches_is_said(text: str, said: str) -> None:
    limits = parse(f"__global__ void k(int*) {{}}\nvoid go() {{ {text} }}\n").limits
    assert said in "\n".join(limits) if said else not limits


def test_operators_are_no_template_brackets() -> None:
    program = parse(
        "__global__ void k(int a, int b) {}\n"
        "int main() { k<<<1 << 4, N >> 2, a < b ? 0 : 4>>>(x << 2, y >> 3); "
        "k<<<f<2, 3>(), g<h<4>>::value>>>(1, 2); }\n"
    )
    first, second = program.launches
    assert (first.grid, first.block, first.smem) == ("1 << 4", "N >> 2", "a < b ? 0 : 4")
    assert first.args == ("x << 2", "y >> 3")
    assert (second.grid, second.block) == ("f<2, 3>()", "g<h<4>>::value")


def test_local_includes_above_the_main_file(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "k.cuh").write_text('#include "deep.cuh"\n__global__ void k() {}\n')
    (tmp_path / "lib" / "deep.cuh").write_text('#include "k.cuh"\n#include "helper_cuda.h"\n')
    main = tmp_path / "app" / "x.cu"
    main.write_text('#include "../lib/k.cuh"\nint main() { k<<<1, 1>>>(); }\n')
    program = load_program(main)
    assert program.main_path == "app/x.cu"
    assert [f.path for f in program.files] == ["app/x.cu", "lib/k.cuh", "lib/deep.cuh"]
    assert program.system_includes == ("helper_cuda.h",)


def test_text_that_is_not_utf8_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.cu"
    path.write_bytes(b"// caf\xe9\r\n__global__ void k() {}\r\nint main() { k<<<1, 1>>>(); }\r\n")
    program = load_program(path)
    assert program.kernels[0].first_line == 2
    assert "\r\n" in program.main.text


def _write(folder: Path, data: bytes) -> Path:
    path = folder / "x.cu"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"\x7fELF\0\0", "is a binary file"),
        (
            b"int main() { return 0; }",
            "no CUDA code in it (no `__global__`, no `<<<`); there is nothing to optimize",
        ),
        (b"__global__ void k(); int main() {}", "no kernel in it"),
        (b"__global__ void k() {} int main() {}", "no kernel is launched"),
        (b"__global__ void k(); int main() { k<<<1, 1>>>(); }", "launches `k`, which another file"),
        (
            b"struct S {}\ntemplate<int n> __global__ void k() {}\nint main() { k<1><<<1,1>>>(); }",
            "what defines `k` cannot be read",
        ),
        (
            b"__global__ void k() {\nif (1) {}\nint main() { k<<<1, 1>>>(); }",
            "1: this `{` is never",
        ),
        (b"__global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }", "no `main` function"),
        (b"// " + b"x" * 5_000_001, "larger than 5 MB"),
    ],
)
def test_bad_input(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_program(_write(tmp_path, data))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_program_without_cuda_in_all_that_it_includes(tmp_path: Path) -> None:
    (tmp_path / "sum.h").write_text("inline int sum(int a, int b) { return a + b; }\n")
    main = tmp_path / "main.cpp"
    main.write_text('#include "sum.h"\nint main() { return sum(0, 0); }\n')
    with pytest.raises(InputError, match=r"nor in what it includes .*; is it a .cu file"):
        load_program(main)


def test_functions_that_have_a_kernels_name_too() -> None:
    text = (
        "__global__ void k();\n__global__ void once(const float *a, unsigned n);\n"
        "void host(float *x) {}\n__global__ void host(float *x, int n) {}\n"
        "__global__ void k(int n) {}\n__global__ void once(const float* b, unsigned n = 1) {}\n"
        "namespace other { void once(int); }\n"
    )
    program = parse_files("k", (SourceFile(path="k.cu", text=text),))
    assert [k.name for k in program.kernels] == ["host", "k", "once"]
    assert [k.name for k in program.kernels if k.shares_name] == ["host", "k"]


def test_braces_in_a_condition_are_no_body() -> None:
    text = (
        "template <typename T> requires requires(T a) { a + a; } && (sizeof(T) == 4)\n"
        "__global__ void k(T *x) { *x = 1; }\n"
        "template <typename T> __global__ void after(T *x) requires std::same_as<T, int> {}\n"
    )
    program = parse_files("k", (SourceFile(path="k.cu", text=text),))
    assert [k.name for k in program.kernels] == ["k", "after"]
    assert program.kernels[0].text.endswith("{ *x = 1; }")


def test_a_kernel_of_a_macro_that_quotes_its_name_is_read() -> None:
    text = (
        '#define MAKE(name) __global__ void name(int* x) { printf("%s", #name); }\n'
        "MAKE(one)\nvoid go(int* p) { one<<<1, 1>>>(p); }\n"
    )
    (kernel,) = parse(text).kernels
    assert kernel.name == "one"
    assert 'printf("%s", "one")' in kernel.text


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_program(tmp_path / "none.cu")
    with pytest.raises(InputError, match="is a directory"):
        load_program(tmp_path)


def test_what_stands_instead_of_a_kernel_or_a_launch_is_named() -> None:
    macro = (
        "#define MAKE(name, ...) __global__ void name(int* x __VA_OPT__(,) __VA_ARGS__) { }\n"
        "MAKE(one)\nint main() {}\n"
    )
    with pytest.raises(InputError, match=r"main.cu:1: macro `MAKE` defines a kernel"):
        require_runnable("main.cu", parse(macro))
    other = (
        "__global__ void k() {}\nint main() { cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0); }\n"
    )
    with pytest.raises(InputError, match=r"main.cu:2: a launch through the driver API"):
        require_runnable("main.cu", parse(other))


def test_kernels_that_a_macro_defines_stand_where_it_is_used() -> None:
    program = parse(
        "#define MAP(NAME, T, ...) template <class A> __global__ void NAME##_map(A *p, T n) { \\\n"
        "  p[threadIdx.x] = n; __VA_ARGS__; }\n"
        "namespace one { MAP(fill, int) }\nMAP(twice, float, p[0] *= 2);\n"
        "int main() { one::fill_map<int><<<1, 2>>>(nullptr, 3); }\n"
    )
    assert [(k.qualified_name, k.first_line) for k in program.kernels] == [
        ("one::fill_map", 3),
        ("twice_map", 4),
    ]
    assert [p.type_text for p in program.kernels[1].parameters] == ["A *", "float"]
    assert "p[0] *= 2" in program.kernels[1].text
    assert program.kernels[1].template_parameters == ("class A",)
    assert only_site(program).kernel == "fill_map"
    assert program.limits == ()


def test_macros_that_define_kernels_and_are_not_followed_are_told() -> None:
    twice = "#define K(N) __global__ void N() { }\n"
    program = parse(f"{twice}K(a)\n#undef K\n{twice}K(b)\nint main() {{ }}\n")
    assert not program.kernels
    assert "defines a kernel" in program.limits[0]


def test_a_parameter_without_a_name_gets_one_for_plans() -> None:
    text = (
        "__global__ void k(float* y, float /*cell*/, const float (*)[4], int n) { y[n] = 1; }\n"
        "int main() { k<<<1, 1>>>(0, 1.0f, 0, 2); }\n"
    )
    program = parse_files("k.cu", (SourceFile(path="k.cu", text=text),))
    names = [p.name for p in program.kernel("k").parameters]
    assert names == ["y", "unnamed_1", "unnamed_2", "n"]


def test_a_plan_hands_on_a_parameter_without_a_name() -> None:
    text = (
        "__global__ void k(float* y, float /*cell*/, int n) { y[n] = 1; }\n"
        "int main() { k<<<1, 1>>>(0, 1.0f, 2); }\n"
    )
    program = parse_files("k.cu", (SourceFile(path="k.cu", text=text),))
    rewrite = make_rewrite(
        "// @launch q grid=(1) block=(1) args=(y, unnamed_1, n)\n"
        "__global__ void q(float* y, float, int n) { y[n] = 1; }\n",
        "user", "t", "w",
    )  # fmt: skip
    spliced = splice(program, "k", rewrite).main.text
    assert "float unnamed_1" in spliced
    assert "(y, unnamed_1, n)" in spliced
