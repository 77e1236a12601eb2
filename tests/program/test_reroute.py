"""Rerouted texts: every line where it was, launches at the shim, strings and comments untouched."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudaops.domain.execution import Compiled, Unit
from cudaops.domain.program import Program, SourceFile
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.macros import later_macros
from cudaops.program.parse import load_program, parse_files
from cudaops.program.plans import make_rewrite
from cudaops.program.reroute import (
    candidate_text,
    deduce_instance,
    device_view_files,
    rerouted_files,
)
from cudaops.transformations.draft import Draft, Subject
from tests.lanes import examples

CheckCpp = Callable[[dict[str, str], str], str]
DATA = Path(__file__).parent.parent / "data"
FINE = [
    p
    for p in sorted([*(DATA / "programs").glob("*.cu"), *(DATA / "calibration").glob("*.cu")])
    if p.stem not in ("no_main", "no_kernel", "syntax_error")
]


def parse(text: str) -> Program:
    return parse_files("main", (SourceFile(path="main.cu", text=text),))


def rerouted(text: str) -> str:
    return rerouted_files(parse(text))["main.cu"]


def view(text: str) -> str:
    return device_view_files(parse(text))["main.cu"]


@pytest.mark.parametrize("path", FINE, ids=lambda p: p.stem)
def test_rerouted_programs_compile_and_keep_their_lines(path: Path, check_cpp: CheckCpp) -> None:
    program = load_program(path)
    for files in (rerouted_files(program), device_view_files(program)):
        for file in program.files:
            assert files[file.path].count("\n") == file.text.count("\n")
        assert check_cpp(files, program.main_path) == ""
    launches = sum(t.count("::cudaops::launch(") for t in rerouted_files(program).values())
    assert launches == len(program.launches)


def test_launch() -> None:
    text = "__global__ void k(int* p) {}\nint main() { k<<<g, {32, 4}, 16, s>>>(p); }\n"
    assert '::cudaops::launch(0, "k", g, dim3{32, 4}, 16, s).of(k)(p);' in rerouted(text)


def test_a_deduced_instance_is_named_as_clang_tells_it() -> None:
    text = rerouted(
        "namespace n { template <class T, int N = 4> __global__ void k(const T* p) {} }\n"
        "struct Pair { float a, b; };\n"
        "template <class T> void twice(T* p) { n::k<<<1, 1>>>(p); }\n"
        "int main() { double* p = nullptr; Pair* q = nullptr; n::k<<<1, 2>>>(p);\n"
        "  n::k<<<1, 3>>>(q); twice(p); struct Own {}; n::k<<<1, 4>>>((Own*)q); }\n"
    )
    assert 'launch(1, "k", 1, 2).of(::n::k<double, 4>)(p);' in text
    assert 'launch(2, "k", 1, 3).of(::n::k<Pair, 4>)(q);' in text
    # In a template it may be another each time, and no other place can name `Own`: there the
    # compiler is asked.
    for asked, geometry in (("p", "1, 1"), ("(Own*)q", "1, 4")):
        probe = f"decltype(n::cudaops_which_k({asked}))::"
        assert f'overload_name({probe}index, "k"), {geometry}).of(static_cast<' in text
        assert f"typename {probe}Pointer>(&n::k))({asked});" in text


def test_launch_with_deduced_arguments_and_overloads() -> None:
    deduced = (
        "template <class T> __global__ void k(T* p) {}\n"
        "namespace n { __global__ void o(int) {} __global__ void o(float) {} }\n"
        "int main() { k<<<1, 2>>>(p); k<int><<<1, 2>>>(p); n::o<<<1, 2>>>(3); }\n"
    )
    text = rerouted(deduced)
    # The compiler is asked which instance or overload a call means.
    for callee in ("k", "k<int>"):
        probe = f"decltype(cudaops_which_{callee}(p))::"
        assert f".of(static_cast<typename {probe}Pointer>(&{callee}))(p);" in text
    probe = "decltype(n::cudaops_which_o(3))::"
    assert f'overload_name({probe}index, "o(int)", "o(float)"), 1, 2)' in text
    assert f".of(static_cast<typename {probe}Pointer>(&n::o))(3);" in text


def test_launch_through_a_macro_names_the_kernel_when_it_runs() -> None:
    text = (
        "__global__ void a() {}\n__global__ void b() {}\n"
        "#define RUN(k, ...) k<<<1, \\\n 2>>>(__VA_ARGS__)\nint main() { RUN(a); RUN(b); }\n"
    )
    assert "::cudaops::launch(0, #k, 1, 2).of(k)\\\n(__VA_ARGS__)" in rerouted(text)


def test_strings_and_comments_stay() -> None:
    text = (
        "__global__ void k() {}\n// k<<<1, 1>>>();\n/* #pragma unroll */\n"
        'const char* s = "k<<<1,1>>>()";\n'
        'const char* r = R"x(extern __shared__ float s[];)x";\nint main() { k<<<1, 1>>>(); }\n'
    )
    lines = rerouted(text).split("\n")
    assert lines[1:5] == text.split("\n")[1:5]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("extern __shared__ float s[];", "CUDAOPS_DYNAMIC_SHARED(float, s);"),
        (
            "extern __shared__ __align__(16) unsigned char s[];",
            "CUDAOPS_DYNAMIC_SHARED(unsigned char, s);",
        ),
        (
            "extern __align__(8) __shared__ std::uint8_t s[];",
            "CUDAOPS_DYNAMIC_SHARED(std::uint8_t, s);",
        ),
        ("extern volatile __shared__ T s[];", "CUDAOPS_DYNAMIC_SHARED(volatile T, s);"),
        ("static __shared__ int s[4];", " __shared__ int s[4];"),
        ("__shared__ static int s[4];", "__shared__  int s[4];"),
        (
            "extern __shared__ float s[][32];",
            "typedef float cudaops_row_s[32]; CUDAOPS_DYNAMIC_SHARED(cudaops_row_s, s);",
        ),
        (
            "extern __shared__ pair<int, float> s[];",
            "typedef pair<int, float> cudaops_row_s; CUDAOPS_DYNAMIC_SHARED(cudaops_row_s, s);",
        ),
    ],
)
def test_shared_memory(declared: str, expected: str) -> None:
    text = rerouted(f"template <class T>\n__global__ void k() {{ {declared} s[0] = 1; }}\n")
    assert f"{{ {expected} s[0] = 1; }}" in text


def test_shared_memory_outside_of_functions_moves_into_its_users() -> None:
    text = rerouted(
        "extern __shared__ int s[];\n__global__ void a() { s[0] = 1; }\n__global__ void b() { }\n"
    )
    assert "__global__ void a() { CUDAOPS_DYNAMIC_SHARED(int, s); { s[0] = 1; } }" in text
    assert "__global__ void b() { }" in text
    assert text.startswith(" ")


def test_a_rewrite_may_name_the_authors_shared_memory_outside_of_functions() -> None:
    theirs = SourceFile(path="a.h", text="extern __shared__ int s[];\nextern __shared__ int t[];\n")
    source = (
        "// @launch k grid=(1) block=(1) args=()\nextern __shared__ float t[];\n"
        "__global__ void k() { s[0] = t[1]; }\n"
    )
    text = candidate_text(make_rewrite(source, "user", "t", "w"), beside=(theirs,))
    both = "CUDAOPS_DYNAMIC_SHARED(int, s); CUDAOPS_DYNAMIC_SHARED(float, t);"
    assert f"void k() {{ {both} {{ s[0] = t[1]; }} }}" in text


def test_shared_memory_outside_of_functions_is_found_as_cpp_would() -> None:
    text = rerouted(
        "namespace n { extern __shared__ int s[];\n"
        "__device__ int inner() { return s[0]; } }\n"
        "extern __shared__ float s[], t[];\n"
        "#define AT(i) t[i]\n"
        "__device__ float outer(float* s) { return s[0]; }\n"
        "struct View { __device__ float get(int i) const { return AT(i); } };\n"
        "__global__ void k() { int s = 1; }\n"
    )
    whole = "CUDAOPS_DYNAMIC_SHARED(float, s); CUDAOPS_DYNAMIC_SHARED(float, t);"
    assert "int inner() { CUDAOPS_DYNAMIC_SHARED(int, s); { return s[0]; } }" in text
    assert "float outer(float* s) { return s[0]; }" in text
    assert f"float get(int i) const {{ {whole} {{ return AT(i); }} }}" in text
    # A name of the body's own hides it.
    assert f"void k() {{ {whole} {{ int s = 1; }} }}" in text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("#pragma unroll", "#pragma GCC unroll 127"),
        ("#pragma unroll 4", "#pragma GCC unroll 4"),
        ("#pragma unroll(8)", "#pragma GCC unroll 8"),
        ("#  pragma unroll 1", "#pragma GCC unroll 1"),
        ("#pragma unroll FACTOR", "#pragma GCC unroll 127"),
        ("#pragma nounroll", "#pragma GCC unroll 1"),
        ('_Pragma("unroll")', '_Pragma("GCC unroll 127")'),
        ('_Pragma("unroll 2")', '_Pragma("GCC unroll 2")'),
        ("#pragma once", "#pragma once"),
    ],
)
def test_unroll(written: str, expected: str) -> None:
    text = rerouted(f"__global__ void k() {{\n{written}\nfor (;;) {{}}\n}}\n")
    assert text.split("\n")[1] == expected


def test_unroll_goes_where_no_loop_follows() -> None:
    assert "unroll" not in rerouted("__global__ void k() {\n#pragma unroll\nint x = 0;\n}\n")


def test_device_view_drops_host_code_only() -> None:
    text = view(
        "struct S { void run() { } S(); };\nS::S() { run(); }\n"
        "static int helper(int a) {\n return a;\n}\n"
        "__host__ __device__ int both(int a) { return a; }\nconstexpr int c(int a) { return a; }\n"
        "template <class T> void go(T x) { k<<<1, 1>>>(x); }\ntemplate void go<int>(int);\n"
        "std::string name = make();\n__global__ void k(int x) { both(c(x)); }\n"
        "#ifdef A\nint main(int n, char** v) {\n#else\nint main() {\n#endif\n return 0;\n}\n"
    )
    assert "helper(int a) ;" in text
    assert "go(T x) ;" in text
    assert "go<int>" not in text
    assert "S::S" not in text
    assert "main" not in text
    assert "both(int a) { return a; }" in text
    assert "constexpr int c(int a) { return a; }" in text
    assert "std::string name = make();" in text
    assert re.findall(r"^#\w+", text, re.MULTILINE) == ["#ifdef", "#else", "#endif"]


METHODS = """#define HD __host__ __device__
struct Timer {
    float* held; float at_;
    Timer() : at_(3) { start(); }
    ~Timer() { stop(); }
private:
    template <class T> explicit Timer(T x) : at_{x} { start(); }
public:
    void start() const noexcept { library(&at_); }
    float stop() { float ms; library(&ms); return ms; }
    template <class F> void go(F f) { f(&at_); }
    operator float() const { return at_; }
    HD float both() { return at_; }
    static constexpr int size() { return 4; }
    auto deduced() { return at_; }
    virtual void later() { }
    LIBRARY_HD float unknown() { return at_; }
    struct Inner { float get() { library(nullptr); return 1; } };
};
__global__ void k(float* x) { x[0] = Timer::size(); }
"""


def test_methods_of_the_host_go_from_a_widened_view_alone() -> None:
    """They hand a `float` to a library, which takes no `double`: `cudaEventElapsedTime`."""
    program = parse(METHODS)
    assert device_view_files(program)["main.cu"] == METHODS
    text = device_view_files(program, widened=True)["main.cu"]
    lost = [
        "void start() const noexcept ;",
        "float stop() ;",
        "go(F f) ;",
        "operator float() const ;",
    ]
    for one in (*lost, "float get() ;"):
        assert one in text
    kept = METHODS.splitlines()
    gone = [a for a, b in zip(kept, text.splitlines(), strict=True) if a != b]
    assert len(gone) == len(lost) + 1


def test_a_macro_may_stand_for_the_function_space() -> None:
    text = view("#define HD __host__ __device__\nHD int f() { return 1; }\nint g() { return 2; }\n")
    assert "f() { return 1; }" in text
    assert "g() ;" in text


CANDIDATE = """#include <cuda_runtime.h>
// @tune TILE = 16, 32
// @launch k<TILE> grid=(1) block=(TILE) args=(A)
#define TILE 99
#define PAD 1
template <int T> __device__ int twice() { return 2 * T; }
extern "C" __global__ void linked() { }
template <int T>
__global__ void k(const float* A) {
    extern __shared__ float s[];
    #pragma unroll
    for (int i = 0; i < T; ++i) s[i] = A[i] + undeclared;
}
"""


def test_candidate_text() -> None:
    rewrite = make_rewrite(CANDIDATE, "user", "t", "w").tuned_with({"TILE": 32})
    text = candidate_text(rewrite)
    assert text.startswith("#include <cuda_runtime.h>\n")
    assert "#define TILE 32\n" in text
    assert "99" not in text
    assert 'namespace cudaops_candidate {\n#line 1 "candidate.cu"\n' in text
    for name in ("TILE", "PAD"):
        assert text.index(f'push_macro("{name}")') < text.index("namespace")
        assert text.index(f'pop_macro("{name}")') > text.index("}  // namespace")
    assert 'extern "C"' not in text


LATER = """#define FACTOR 3
#include "width.h"
__global__ void k(float* x, int B, int T) { if (B < T) x[B] *= FACTOR; }
#define B 8
#define FACTOR_OF_HOST B
int main() { float* x; k<<<B, 1>>>(x, 0, T); }
#define T 4
"""


def test_a_macro_below_the_kernel_is_none_in_a_rewrite(tmp_path: Path) -> None:
    files = (
        SourceFile(path="main.cu", text=LATER),
        SourceFile(path="width.h", text="#pragma once\n#define WIDTH 2\n"),
    )
    program = parse_files("main", files)
    kernel = program.kernel("k")
    assert later_macros(program, kernel) == ("B", "T")
    source = "// @launch f grid=(1) block=(1) args=(x, B, T)\n" + kernel.text.replace("k(", "f(")
    unit = Unit(
        program=program, kernel="k", callee="k", rewrite=make_rewrite(source, "user", "t", "w")
    )
    compiled = CpuExecutor("A10", tmp_path).compile(unit)
    assert isinstance(compiled, Compiled), compiled
    assert Draft.of(Subject(program, kernel, ())).kernel.text.endswith(kernel.text[-30:])


def test_candidate_errors_name_the_rewrites_own_lines(check_cpp: CheckCpp) -> None:
    rewrite = make_rewrite(CANDIDATE, "user", "t", "w")
    errors = check_cpp({"all.cpp": candidate_text(rewrite)}, "all.cpp")
    assert "candidate.cu:12:" in errors


def test_candidate_macros_do_not_leak(check_cpp: CheckCpp) -> None:
    rewrite = make_rewrite(CANDIDATE.replace(" + undeclared", ""), "user", "t", "w")
    after = "static_assert(PAD == 7);\n#ifdef TILE\n#error\n#endif\n"
    text = f"#define PAD 7\n{candidate_text(rewrite)}{after}"
    assert check_cpp({"all.cpp": text}, "all.cpp") == ""


@pytest.mark.parametrize(
    ("template", "parameters", "elements", "expected"),
    [
        ("typename T", "const T* x, T* y, int n", ["f32", "f32", "i32"], "k<float>"),
        ("class T, typename U", "T* x, U s", ["f64", "i64"], "k<double, long long>"),
        ("typename T, int B = 256", "T* x", ["u8"], "k<unsigned char, 256>"),
        ("int B", "float* x", ["f32"], None),
        ("typename T", "T* x", [None], None),
        ("typename T", "T* x", ["opaque"], None),
    ],
)
def test_deduce_instance(
    template: str, parameters: str, elements: list[str | None], expected: str | None
) -> None:
    kernel = parse(f"template <{template}> __global__ void k({parameters}) {{}}").kernels[0]
    assert deduce_instance(kernel, elements) == expected  # type: ignore[arg-type]


SEEDS = [p.read_text() for p in FINE]
PIECES = st.sampled_from(
    ["{", "}", "(", ")", "<<<", ">>>", ">", "<", ";", '"', "'", "/*", "*/", "//",
     "#if 0\n", "#endif\n", "#define X ", "\\\n", "extern __shared__ ", "template <", "__global__ ",
     "k<<<1,1>>>(", "\u00e9", "[", "]"]
)  # fmt: skip


@given(st.sampled_from(SEEDS), st.data())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_broken_text_never_crashes_and_keeps_its_lines(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 40))
        text = text[:at] + data.draw(PIECES) + text[at + cut :]
    program = parse(text)
    for files in (rerouted_files(program), device_view_files(program)):
        assert files["main.cu"].count("\n") == text.count("\n")


def test_a_device_view_has_no_member_that_is_defined_outside_of_its_class(
    check_cpp: CheckCpp,
) -> None:
    text = """#include <stdexcept>
__global__ void k(int* p) { p[0] = 1; }
struct Buffer { Buffer(int n); ~Buffer(); int operator()(int x) const; static void clear(int* p); };
Buffer::Buffer(int n) try { if (n) throw std::runtime_error("n"); } catch (...) { throw; }
Buffer::~Buffer() { }
int Buffer::operator()(int x) const { return x; }
void Buffer::clear(int* p) { k<<<1, 1>>>(p); }
template <class T> struct Stream { Stream(); void run(T* p); };
template <class T> Stream<T>::Stream() { }
template <class T> void Stream<T>::run(T* p) { k<<<1, 1>>>(p); }
int guarded(int x) try { return x; } catch (const std::exception&) { return 1; }
catch (...) { return 2; }
int main() try { Stream<int>().run(nullptr); return guarded(0); } catch (...) { return 1; }
"""
    seen = view(text)
    assert "::~Buffer" not in seen
    assert "catch" not in seen
    assert "__global__ void k(int* p) { p[0] = 1; }" in seen
    assert check_cpp(device_view_files(parse(text)), "main.cu") == ""
    assert check_cpp(rerouted_files(parse(text)), "main.cu") == ""
