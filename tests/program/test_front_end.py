"""What clang makes of kernels: trees, types, instances, and what is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cudaops.domain.program import Kernel, Program, SourceFile
from cudaops.errors import PrerequisiteError
from cudaops.program import syntax as s
from cudaops.program.front_end import FrontEnd, kernel_form
from cudaops.program.parse import load_program, parse_files

ROOT = Path(__file__).parents[2]
FLOATS = "float* a, const float* b, int n"


def program_of(text: str, **headers: str) -> Program:
    files = {"main.cu": text, **{f"{name}.h": t for name, t in headers.items()}}
    return parse_files("main", tuple(SourceFile(path=p, text=t) for p, t in files.items()))


def form_of(text: str, callee: str | None = None, **headers: str) -> s.KernelForm:
    program = program_of(text, **headers)
    kernel: Kernel = program.kernels[-1]
    return kernel_form(program, kernel, callee)


def body_of(body: str, before: str = "", parameters: str = FLOATS) -> tuple[s.Statement, ...]:
    return form_of(f"{before}\n__global__ void k({parameters}) {{ {body} }}").kernel.body


def value_of(expression: str, before: str = "", parameters: str = FLOATS) -> s.Expression:
    (statement,) = body_of(f"auto v = {expression};", before, parameters)
    assert isinstance(statement, s.Declare)
    assert statement.value is not None
    return statement.value


A, B, N, COUNTER = s.Name("a"), s.Name("b"), s.Name("n"), s.Name("i")
ZERO = s.Number("0")

EXPRESSIONS: dict[str, s.Expression] = {
    "a[n] + b[n]": s.Binary("+", s.Index(A, N), s.Index(B, N)),
    "n % 3 << 2": s.Binary("<<", s.Binary("%", N, s.Number("3")), s.Number("2")),
    "n > 0 && !(n == 7) ? -n : ~n": s.Choice(
        s.Binary("&&", s.Binary(">", N, ZERO), s.Unary("!", s.Binary("==", N, s.Number("7")))),
        s.Unary("-", N), s.Unary("~", N)),
    "*(b + n)": s.Unary("*", s.Binary("+", B, N)),
    "&a[n]": s.Unary("&", s.Index(A, N)),
    "(float)n": s.Cast("float", N),
    "static_cast<long>(n)": s.Cast("long long", N),
    "size_t(n)": s.Cast("unsigned long long", N),
    "threadIdx.x": s.Member(s.Name("threadIdx"), "x"),
    "fmaf(b[n], 2.0f, __expf(1e-3f))": s.Call("fmaf", (
        s.Index(B, N), s.Number("2.0f"), s.Call("__expf", (s.Number("1e-3f"),)))),
    "sizeof(double)": s.Number("8ull"),
    "true": s.Name("true"),
    "n++": s.Step(N, 1),
    "--n": s.Step(N, -1),
    "n += 2": s.Assign(N, "+", s.Number("2")),
    "a[n] = b[n] = 0": s.Assign(s.Index(A, N), "", s.Assign(s.Index(B, N), "", ZERO)),
    "make_float4(0, 0, 0, 0).x": s.Member(s.Call("make_float4", (ZERO,) * 4), "x"),
    "__shfl_down_sync(~0u, b[n], 1)": s.Call(
        "__shfl_down_sync", (s.Unary("~", s.Number("0u")), s.Index(B, N), s.Number("1"))),
}  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text: str) -> None:
    assert value_of(text, parameters="float* a, float* b, int n") == EXPRESSIONS[text]


CONSTANTS: dict[str, tuple[str, str]] = {
    "#define SIZE (4 * 8)": ("SIZE", "Binary(4 * 8)"),
    "constexpr int SIZE = 4 * 8;": ("SIZE", "32"),
    "constexpr unsigned SIZE = 1u << 31;": ("SIZE", "2147483648u"),
    "enum { FIRST, SECOND };": ("SECOND", "1"),
    "const float EPS = 0.1f;": ("EPS", "0.1f"),
    "constexpr double PI = 3.141592653589793;": ("PI", "3.141592653589793"),
    "static const long long BIG = 1ll << 40;": ("BIG", "1099511627776ll"),
    "constexpr float THIRD = 1.0f / 3;": ("THIRD", "0.33333334f"),
    "template <int N> struct Twice { static constexpr int value = 2 * N; };": (
        "Twice<21>::value", "42"),
}  # fmt: skip


@pytest.mark.parametrize("before", CONSTANTS)
def test_constants_are_the_numbers_they_are_worth(before: str) -> None:
    text, expected = CONSTANTS[before]
    found = value_of(text, before)
    if isinstance(found, s.Binary):
        assert (found.left, found.operator, found.right) == (s.Number("4"), "*", s.Number("8"))
    else:
        assert found == s.Number(expected)


def test_a_negative_constant_and_one_that_a_program_may_change() -> None:
    assert value_of("LOW", "constexpr int LOW = -3;") == s.Unary("-", s.Number("3"))
    assert value_of("scale", "__constant__ float scale = 2;") == s.Name("scale")
    assert value_of("warpSize") == s.Name("warpSize")


def test_types_stand_at_every_node() -> None:
    found = value_of("b[n] * 2.0")
    assert isinstance(found, s.Binary)
    assert (found.type, found.left.type, found.right.type) == ("double", "float", "double")
    assert value_of("b").type == "float*"
    assert value_of("threadIdx.x * n").type == "unsigned"


def test_statements() -> None:
    loop = body_of("for (int i = 0; i < n; i += 2) { if (i == 3) break; else continue; }")
    first = s.Declare("int", "i", value=ZERO)
    step = (s.Assign(COUNTER, "+", s.Number("2")),)
    inner = s.If(
        s.Binary("==", COUNTER, s.Number("3")), (s.Leave("break"),), (s.Leave("continue"),)
    )
    assert loop == (s.For((first,), s.Binary("<", COUNTER, N), step, (inner,)),)
    assert body_of("while (n) n--;") == (s.For((), N, (), (s.Evaluate(s.Step(N, -1)),)),)
    assert body_of("do { n--; } while (n);") == (s.Do((s.Evaluate(s.Step(N, -1)),), N),)
    assert body_of("if (n < 2) return;") == (
        s.If(s.Binary("<", N, s.Number("2")), (s.Leave("return"),)),
    )
    assert body_of("switch (n) { case 1: a[0] = 1; break; default: ; }") == (
        s.Switch(N, (
            s.Label(s.Number("1")), s.Evaluate(s.Assign(s.Index(A, ZERO), "", s.Number("1"))),
            s.Leave("break"), s.Label(),
        )),
    )  # fmt: skip
    assert body_of("n = 1, n = 2;") == tuple(
        s.Evaluate(s.Assign(N, "", s.Number(text))) for text in "12"
    )


@pytest.mark.parametrize(
    ("header", "first", "condition", "step"),
    [
        ("; i < n; ++i", 0, True, 1),
        ("i = 0; ; ++i", 1, False, 1),
        ("; ; ++i", 0, False, 1),
        ("i = 0; i < n;", 1, True, 0),
        ("; ;", 0, False, 0),
        ("; (i < n); i++, n--", 0, True, 2),
    ],
)
def test_parts_that_a_loop_does_not_have(
    header: str, first: int, condition: bool, step: int
) -> None:
    loop = body_of(f"int i = 0; for ({header}) {{ break; }}")[1]
    assert isinstance(loop, s.For)
    counted = len(loop.first), loop.condition is not None, len(loop.step)
    assert counted == (first, condition, step)


def test_declarations() -> None:
    shared, dynamic, local, zeroed, pointer = body_of(
        "__shared__ float tile[4][n_tile]; extern __shared__ double more[]; int x[3];"
        " float sums[2] = {0}; const float* at = b + 1;",
        "constexpr int n_tile = 33;",
    )
    assert shared == s.Declare(
        "float", "tile", extents=(s.Number("4"), s.Number("33")), shared=True
    )
    assert dynamic == s.Declare("double", "more", shared=True, unsized=True)
    assert local == s.Declare("int", "x", extents=(s.Number("3"),))
    assert zeroed == s.Declare("float", "sums", extents=(s.Number("2"),), zeroed=True)
    assert isinstance(pointer, s.Declare)
    assert (pointer.type, pointer.pointer) == ("float", True)


@pytest.mark.parametrize("aligned", ["alignas(16)", "alignas(alignof(double2))", "__align__(16)"])
def test_alignment_behind_shared_as_nvcc_takes_it(aligned: str) -> None:
    tile, dynamic, _ = body_of(
        f"__shared__ {aligned} float tile[4]; extern __shared__ {aligned} double more[]; n = 1;"
    )
    assert tile == s.Declare("float", "tile", extents=(s.Number("4"),), shared=True)
    assert dynamic == s.Declare("double", "more", shared=True, unsized=True)


def test_a_second_variable_of_a_name_has_one_of_its_own() -> None:
    loops = body_of("for (int i = 0; i < n; ++i) a[i] = 0; for (int i = 0; i < n; ++i) a[i] = 1;")
    names = [n.name for loop in loops for n in s.below(loop) if isinstance(n, s.Declare)]
    used = [{n.text for n in s.below(loop) if isinstance(n, s.Name)} for loop in loops]
    assert names == ["i", "i#2"]
    assert used == [{"i", "n", "a"}, {"i#2", "n", "a"}]


def test_macros_are_in_place_and_ranges_are_the_authors() -> None:
    text = "#define AT(x, i) x[(i) + 1]\n__global__ void k(float* a, int n) { AT(a, n) = 2; }\n"
    form = form_of(text)
    (statement,) = form.kernel.body
    assert statement == s.Evaluate(
        s.Assign(s.Index(A, s.Binary("+", N, s.Number("1"))), "", s.Number("2"))
    )
    assert statement.where is not None
    assert text[statement.where.start : statement.where.end] == "AT(a, n) = 2"
    where = form.kernel.where
    assert where is not None
    assert text[where.start : where.end].startswith("__global__ void k(")


def test_branches_are_those_that_the_compiler_sees() -> None:
    before = "#ifdef X\n#define SIZE 8\n#else\n#define SIZE 16\n#endif\n"
    assert value_of("SIZE", before) == s.Number("16")
    assert value_of("SIZE", f"#define X\n{before}") == s.Number("8")


INSTANCES = """
template <typename T, int W> __device__ T twice(T x) { return x * W; }
template <typename T, int W, bool FAST> __global__ void k(const T* __restrict__ x, T* y, int n) {
    if constexpr (FAST) y[n] = twice<T, W>(x[n]);
    else y[n] = W;
}
"""


def test_an_instance_has_its_arguments_in_place() -> None:
    fast = form_of(INSTANCES, "k<double, 4, true>")
    assert [(p.type, p.is_pointer, p.is_const) for p in fast.kernel.parameters] == [
        ("double", True, True), ("double", True, False), ("int", False, False),
    ]  # fmt: skip
    (twice,) = fast.functions
    assert twice.body == (s.Give(s.Binary("*", s.Name("x"), s.Number("4"))),)
    assert any(isinstance(n, s.Call) and n.function == "twice" for n in s.below(fast.kernel))
    slow = form_of(INSTANCES, "k<float, 2, false>")
    assert slow.functions == ()
    assert s.Number("2") in list(s.below(slow.kernel))


CHOSEN = """
template <int W> __global__ void k(int* y, int n) {
    constexpr int BYTES = W * sizeof(int);
    if constexpr (BYTES == 4) y[n] = 11;
    else if constexpr (BYTES == 8) { int twice = 2 * n; y[twice] = 12; }
    else if constexpr (BYTES < 4) { }
    if constexpr (sizeof(n) == 2) { y[n] = 13; } else { y[n] = 14; }
    if constexpr (W == 3) y[n] = 15;
    if (W == 4) y[n] = 16;
    if (
        n    == 4) y[n] = 17;
}
"""


@pytest.mark.parametrize(
    ("width", "kept"), [(1, {11, 14}), (2, {12, 14}), (3, {14, 15}), (4, {14}), (5, {14})]
)
def test_of_a_choice_at_compile_time_one_branch_is_there(width: int, kept: set[int]) -> None:
    body = form_of(CHOSEN, f"k<{width}>").kernel.body
    numbers = {int(n.text) for n in s.below(body) if isinstance(n, s.Number) and n.text.isdigit()}
    assert {n for n in numbers if n > 10} == kept | {16, 17}
    assert sum(isinstance(n, s.If) for n in s.below(body)) == 2
    assert all(n.where is not None for n in s.below(body) if isinstance(n, s.Block))


def test_an_instance_that_only_a_host_template_can_spell() -> None:
    host = "template <typename T> void run(T* p) { k<T, 3, true><<<1, 1>>>(p, p, 1); }\n"
    form = form_of(f"{INSTANCES}{host}int main() {{ float* p = 0; run(p); }}", "k<T, 3, true>")
    assert form.kernel.parameters[0].type == "float"
    two = f"{INSTANCES}{host}int main() {{ run((float*)0); run((double*)0); }}"
    with pytest.raises(s.NotUnderstood, match="2 instances of k"):
        form_of(two, "k<T, 3, true>")


def test_launch_bounds() -> None:
    text = "#define MOST 128\n__global__ void __launch_bounds__(MOST, 2) k(float* a) {}"
    assert form_of(text).kernel.launch_bounds == (128, 2)
    text = "template <int B> __global__ void __launch_bounds__(2 * B) k(float* a) {}"
    assert form_of(text, "k<32>").kernel.launch_bounds == (64,)


STRUCTURES = """
struct View { const float* data; int stride; };
struct Base { double* low; };
struct Derived : Base { View views[2]; struct { int n; unsigned* counts; } inner; };
union Either { float* a; long b; };
struct Table { float** rows; };
typedef const int* Integers;
template <typename T> struct Plain { T x, y; };
struct Hidden { int n; union { int a; float b; }; struct { double* deep; }; };
"""


@pytest.mark.parametrize(
    ("parameter", "pointers", "unclear"),
    [
        ("View p", [("p.data", 0, "float", True)], ""),
        (
            "Derived p",
            [("p.low", 0, "double", False), ("p.views[0].data", 8, "float", True),
             ("p.views[1].data", 24, "float", True), ("p.inner.counts", 48, "unsigned", False)],
            "",
        ),
        ("Plain<double> p", [], ""),
        ("Hidden p", [("p.deep", 8, "double", False)], ""),
        ("Either p", [], "p is a union that holds a pointer"),
        ("Table p", [], "p.rows is a table of pointers"),
        ("float** p", [], "points to pointers"),
    ],
)  # fmt: skip
def test_structures_are_walked_to_their_pointers(
    parameter: str, pointers: list[tuple[str, int, str, bool]], unclear: str
) -> None:
    (found,) = form_of(f"{STRUCTURES}__global__ void k({parameter}) {{}}").kernel.parameters
    assert [(p.path, p.offset_bytes, p.type, p.is_const) for p in found.pointers] == pointers
    assert found.unclear == unclear


def test_an_alias_of_a_pointer_is_a_pointer() -> None:
    (found,) = form_of(f"{STRUCTURES}__global__ void k(Integers p) {{}}").kernel.parameters
    assert (found.type, found.is_pointer, found.is_const, found.size_bytes) == (
        "int",
        True,
        True,
        8,
    )


def test_methods_operators_and_functions_of_the_program() -> None:
    form = form_of(
        "struct V { float x; __device__ V operator+(V o) const { return V{x + o.x}; }\n"
        "  __device__ float norm() const { return x * x; } };\n"
        "__device__ float norm(V v) { return v.norm(); }\n"
        "__global__ void k(V* v, float* a) { V sum = v[0] + v[1]; a[0] = norm(sum); v[2] = sum; }"
    )
    assert {f.name for f in form.functions} == {"V::operator+", "norm", "V::norm"}
    calls = [n.function for n in s.below(form.kernel) if isinstance(n, s.Call)]
    assert calls == ["V::operator+", "norm"]
    norm = form.function("norm")
    assert norm is not None
    assert norm.body == (s.Give(s.Call("V::norm", (s.Name("v"),))),)
    last = form.kernel.body[-1]
    assert isinstance(last, s.Evaluate)
    assert isinstance(last.value, s.Assign)


def test_kernels_in_local_headers_and_namespaces() -> None:
    header = "#pragma once\nnamespace ops { __global__ void k(float* a, int n) { a[n] = TWO; } }\n"
    form = form_of('#define TWO 2\n#include "kernels.h"\n', kernels=header)
    assert form.kernel.qualified_name == "ops::k"
    assert form.kernel.where is not None
    assert form.kernel.where.file == "kernels.h"


def test_what_is_not_modelled_is_there_to_be_seen() -> None:
    assert value_of("[=]{ return n; }()").__class__ in (s.Call, s.Unmodelled)
    (reference,) = body_of("float& r = a[0];")
    (assembly,) = body_of('asm volatile("nop;");')
    assert reference == s.Refer("float", "r", s.Index(A, ZERO))
    assert isinstance(assembly, s.Opaque)
    cast = value_of("reinterpret_cast<const int*>(b)")
    assert cast == s.Cast("int*", B)


@pytest.mark.parametrize(
    "members",
    [
        "~V() { __syncthreads(); }",
        "V() { x = threadIdx.x; } ~V() { __syncthreads(); }",
        "V() { x = threadIdx.x; } V(const V& o) { x = 2; }",
        "V() = default; V(const V& o) { x = threadIdx.x; }",
        "struct Inner { ~Inner() { __syncthreads(); } } inner;",
    ],
)
def test_an_object_that_runs_code_by_itself_is_not_overlooked(members: str) -> None:
    before = f"struct V {{ float x; {members} }};"
    plain, several = body_of("V v; V more[2];", before)
    assert plain == several == s.Opaque("object with code of its own")
    assert [s.Declare("V", "v")] == list(body_of("V v;", "struct V { float x, y; };"))


def test_a_constructor_is_a_function_that_gives_an_object() -> None:
    before = """struct V {
        float x, y = 2.0f, z[2];
        V(float a) : x(a) { if (a > 1) return; this->z[0] = y; }
    };"""
    form = form_of(f"{before}\n__global__ void k({FLOATS}) {{ V v(b[n]); }}")
    assert form.kernel.body == (s.Declare("V", "v", value=s.Call("V", (s.Index(B, N),))),)
    (made,) = form.functions
    this = s.Name("this")
    assert made.result == "V"
    assert made.body == (
        s.Declare("V", "this"),
        s.Evaluate(s.Assign(s.Member(this, "x"), "", A)),
        s.Evaluate(s.Assign(s.Member(this, "y"), "", s.Number("2.0f"))),
        s.If(s.Binary(">", A, s.Number("1")), (s.Give(this),)),
        s.Evaluate(s.Assign(
            s.Index(s.Member(this, "z"), ZERO), "", s.Member(this, "y"),
        )),
        s.Give(this),
    )  # fmt: skip


def test_a_number_of_constants_is_seen_through_what_computes_it() -> None:
    before = "constexpr int log2of(int n) { return n < 2 ? 0 : 1 + log2of(n / 2); }"
    assert value_of("log2of(32)", before) == s.Number("5")
    assert isinstance(value_of("log2of(n)", before), s.Call)
    fixed = body_of("static constexpr int m = 3; a[m] = 1;")
    assert fixed[1] == s.Evaluate(s.Assign(s.Index(A, s.Number("3")), "", s.Number("1")))
    assert body_of("static int m = 3;") == (s.Opaque("static variable"),)
    before = "template <int N> struct V { int x[N]; }; const int M = 2;"
    assert value_of("((V<M>*)a)->x[0]", before) == s.Index(
        s.Member(s.Unary("*", s.Cast("V<2>*", A)), "x"), ZERO
    )


def test_a_copy_that_the_program_writes_is_a_call() -> None:
    before = "struct V { float x; V() = default; V(const V& o) { x = threadIdx.x; } };"
    (passed,) = body_of("use(v[0]);", f"{before} __device__ void use(V v);", "V* v")
    assert isinstance(passed, s.Evaluate)
    assert isinstance(passed.value, s.Call)
    assert passed.value.arguments == (s.Call("V", (s.Index(s.Name("v"), ZERO),)),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__global__ void k(float* a) { mystery(a); a[0] = 1; }", "main.cu:1: .*mystery"),
        ("#include <not_there.h>\n__global__ void k(Thing a) { }", "unknown type name 'Thing'"),
        ("__global__ void k(float* a) { a[0] = ; }", "main.cu:1: expected expression"),
        (
            "struct P { Missing x; float* p; };\n__global__ void k(P p) { p.p[0] = 1; }",
            "main.cu:1: unknown type name 'Missing'",
        ),
        ("template <int N> __global__ void k(float* a) { a[N] = 1; }", "arguments that are not"),
    ],
)
def test_errors_in_a_kernel_refuse_it(text: str, says: str) -> None:
    with pytest.raises(s.NotUnderstood, match=says):
        form_of(text)


def test_an_error_elsewhere_is_no_reason() -> None:
    kernel = "#include <not_there.h>\n__global__ void k(float* a) { a[0] = 1; }\n"
    host = "struct Timer { void start() { missing(); } };\nint main() { not_declared(); }"
    assert len(form_of(kernel + host).kernel.body) == 1


def test_trees_survive_the_way_to_their_reader() -> None:
    form = form_of(f"{STRUCTURES}__global__ void k(Derived p) {{ p.low[0] += 1; }}")
    assert s.decoded(s.encoded(form)) == form
    with pytest.raises(s.NotUnderstood):
        s.decoded(["Popen", "sh"])


def test_a_child_that_dies_or_hangs_costs_one_question() -> None:
    front_end = FrontEnd()

    def answers(text: str = "__global__ void k() {}") -> bool:
        request = {
            "files": {"x.cu": text}, "main": "x.cu", "kernel": "k", "callee": None,
            "place": ("x.cu", 0, len(text)), "is_overloaded": False,
        }  # fmt: skip
        try:
            return "form" in front_end.ask(request)
        except s.NotUnderstood:
            return False

    assert answers()
    assert front_end.child_pid is not None
    os.kill(front_end.child_pid, signal.SIGSTOP)
    front_end.timeout_s = 0.2
    assert not answers()
    front_end.timeout_s = 60.0
    assert answers()
    os.kill(front_end.child_pid, signal.SIGKILL)
    assert answers() or answers(), "asked of the dying one, or of the next"
    assert not answers("__global__ void k() { int n = " + "(" * 300_000)
    assert not answers("__global__ void k() { int n = " + "-" * 9_000 + "1; }")
    assert answers()
    front_end.close()


def test_a_clang_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/not/there")
    monkeypatch.setenv("PATH", "/not/there")
    front_end = FrontEnd()
    with pytest.raises(PrerequisiteError, match=r"libclang does not start: .*; install it again"):
        front_end.ask({})
    assert front_end.child_pid is None


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "examples").glob("*.cu")))
def test_every_kernel_of_the_examples_is_read(name: str) -> None:
    program = load_program(ROOT / "examples" / name)
    for kernel in program.kernels:
        callee = next((x.callee for x in program.launches if x.kernel == kernel.name), None)
        form = kernel_form(program, kernel, callee)
        assert [p.name for p in form.kernel.parameters] == [p.name for p in kernel.parameters]
        assert [p.is_pointer for p in form.kernel.parameters] == [
            p.is_pointer for p in kernel.parameters
        ]
        assert not [n for n in s.below(form) if isinstance(n, s.Opaque)]
