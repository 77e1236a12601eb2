"""Directives to plans, plans to numbers, and what is refused."""

from __future__ import annotations

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import BufferValue, NullValue, NumberValue, RawValue
from cudaops.domain.workload import NullArgument, OpaqueArgument, ScalarArgument, Workload
from cudaops.errors import PlanError
from cudaops.program.instances import bound_arguments
from cudaops.program.plans import baseline_plan, instance, make_rewrite, parse_plan, resolve
from cudaops.program.serving import named_parameters

BODY = """
#define PAD 2
constexpr int HALF = TILE / 2;
template <int T, int H>
__global__ void tiled(const float* A, const float* B, float* C, int N, char* partial) { }
__global__ void finish(char* partial, float* C, int N, float one) { }
"""
SOURCE = (
    """// @tune TILE = 16, 32
// @scratch partial bytes=sizeof(float)*N*PAD
// @requires N % 4 == 0
// @launch tiled<TILE, HALF> grid=(ceil_div(N,TILE), gridDim.y) block=(TILE, TILE) \
smem=64*1024 args=(A, B, C + N, N, partial)
// @launch finish grid=(1) block=(blockDim.x) args=(partial + 16, C, N / 2, 1)
"""
    + BODY
)


def _rewrite(directives: str) -> object:
    return make_rewrite(directives + BODY, "user", "title", "why")


def test_plan_keeps_expressions_as_written() -> None:
    plan = parse_plan(SOURCE)
    assert [s.kernel for s in plan.launches] == ["tiled<TILE, HALF>", "finish"]
    assert plan.launches[0].grid == ("ceil_div(N,TILE)", "gridDim.y")
    assert plan.launches[0].args == ("A", "B", "C + N", "N", "partial")
    assert plan.launches[1].smem == "0"
    assert [s.line for s in plan.launches] == [4, 5]
    assert plan.tune[0].values == (16, 32)
    assert plan.scratch[0].size_bytes == "sizeof(float)*N*PAD"
    assert plan.requires == ("N % 4 == 0",)


def test_resolve(naive_kernel: Kernel, workload: Workload) -> None:
    rewrite = make_rewrite(SOURCE, "user", "title", "why")
    plan = resolve(rewrite, naive_kernel, workload)
    first, second = plan.launches
    assert plan.applicable
    assert first.grid == Dim3(x=64, y=64)
    assert first.block == Dim3(x=16, y=16)
    assert first.dynamic_smem_bytes == 65536
    assert first.values[2] == BufferValue(allocation=2, offset_bytes=4096)
    assert first.values[4] == BufferValue(scratch="partial")
    assert second.step == 1
    assert second.block == Dim3(x=16)
    assert second.values == (
        BufferValue(scratch="partial", offset_bytes=16),
        BufferValue(allocation=2),
        NumberValue(value=512),
        NumberValue(value=1),
    )
    assert plan.scratch_bytes == {"partial": 8192}


def test_tuned_values_reach_geometry_and_instance(naive_kernel: Kernel, workload: Workload) -> None:
    rewrite = make_rewrite(SOURCE, "user", "title", "why").tuned_with({"TILE": 32})
    assert resolve(rewrite, naive_kernel, workload).launches[0].block == Dim3(x=32, y=32)
    assert instance(rewrite, rewrite.plan.launches[0]) == "tiled<32, 16>"
    assert instance(rewrite, rewrite.plan.launches[1]) == "finish"


TEMPLATE = Kernel(
    name="k", qualified_name="ops::k", parameters=(),
    template_parameters=("typename T", "int BLOCK", "bool FAST = false"),
    file="a.cu", first_line=1, last_line=1, start_byte=0, end_byte=1, text="",
)  # fmt: skip


def test_template_parameters_are_names(workload: Workload) -> None:
    launch = "// @launch q<T, 2*BLOCK, FAST> grid=(BLOCK) block=(sizeof(T)) args=()\n"
    text = launch + "template <class U, int B, bool F> __global__ void q() {}\n"
    rewrite = make_rewrite(text, "user", "t", "w")
    of = {"T": "unsigned long long", "BLOCK": "64u", "FAST": "true"}
    callee = f"ops::k<{', '.join(of.values())}>"
    here = workload.model_copy(update={"callee": callee})
    (resolved,) = resolve(rewrite, TEMPLATE, here).launches
    assert (resolved.grid.x, resolved.block.x) == (64, 8)
    bound = bound_arguments(TEMPLATE, callee)
    assert bound == of
    assert instance(rewrite, rewrite.plan.launches[0], bound) == (
        "q<unsigned long long, 2*64u, true>"
    )
    assert bound_arguments(TEMPLATE, "ops::k<Pair<int, 2>, 8>")["FAST"] == "false"
    unsized = workload.model_copy(update={"callee": "ops::k<Pair<int, 2>, 8>"})
    with pytest.raises(PlanError, match="sizeof does not know the type `T`"):
        resolve(rewrite, TEMPLATE, unsized)


def test_a_name_of_the_rewrite_hides_the_authors(workload: Workload) -> None:
    text = (
        "// @tune BLOCK = 32\n// @launch q<BLOCK> grid=(BLOCK) block=(1) args=()\n"
        "template <int B> __global__ void q() {}\n"
    )
    rewrite = make_rewrite(text, "user", "t", "w")
    assert not named_parameters(rewrite, TEMPLATE)
    here = workload.model_copy(update={"callee": "ops::k<float, 64>"})
    assert resolve(rewrite, TEMPLATE, here).launches[0].grid.x == 32
    alias = (
        "// @launch q<T> grid=(1) block=(1) args=()\nusing T = double;\n"
        "template <class U> __global__ void q() {}\n"
    )
    aliased = make_rewrite(alias, "user", "t", "w")
    assert not named_parameters(aliased, TEMPLATE)
    bound = bound_arguments(TEMPLATE, "ops::k<float, 64>")
    assert instance(aliased, aliased.plan.launches[0], bound) == "q<T>"
    with pytest.raises(PlanError, match="also a template parameter of `q`"):
        make_rewrite(text.replace("int B>", "int BLOCK>"), "user", "t", "w")


def test_unmet_requirement_runs_the_baseline(naive_kernel: Kernel, workload: Workload) -> None:
    odd = workload.model_copy(
        update={
            "arguments": (
                *workload.arguments[:3],
                ScalarArgument(name="N", element="i32", value=1023),
            )
        }
    )
    plan = resolve(make_rewrite(SOURCE, "user", "t", "w"), naive_kernel, odd)
    assert not plan.applicable
    assert plan.unmet == "N % 4 == 0"
    assert plan.launches == baseline_plan(odd).launches


def test_every_kind_of_argument_is_handed_on(naive_kernel: Kernel, workload: Workload) -> None:
    arguments = (
        workload.arguments[0],
        NullArgument(name="B"),
        OpaqueArgument(name="C", raw_hex="0a0b"),
        ScalarArgument(name="N", element="f32", value=0.5),
    )
    mixed = workload.model_copy(update={"arguments": arguments})
    source = (
        "// @launch k grid=(1) block=(1) args=(A, B, C, N, nullptr)\n"
        "__global__ void k(float* a, float* b, S c, float n, int* p) {}\n"
    )
    values = resolve(make_rewrite(source, "u", "t", "w"), naive_kernel, mixed).launches[0].values
    assert values[1:] == (
        NullValue(),
        RawValue(raw_hex="0a0b"),
        NumberValue(value=0.5),
        NullValue(),
    )
    assert baseline_plan(mixed).launches[0].values == values[:4]


LAUNCH = "// @launch finish grid=(1) block=(1) args=(A, C, N, 1)\n"


@pytest.mark.parametrize(
    ("directives", "place", "message"),
    [
        ("", (1, 1), "no `// @launch"),
        ("// @launch", (1, 11), "needs a kernel name"),
        ("// @launch 3 grid=(1) block=(1) args=()", (1, 12), "not a kernel name"),
        ("// @launch finish block=(1) args=()", (1, 36), "misses `grid=(..)`"),
        ("// @launch finish grid=(1) args=()", (1, 35), "misses `block=(..)`"),
        ("// @launch finish grid=(1) block=(1)", (1, 37), "misses `args=(..)`"),
        ("// @launch finish grid=1 block=(1) args=()", (1, 24), "needs parentheses"),
        ("// @launch finish grid=() block=(1) args=()", (1, 24), "1 to 3 expressions, not 0"),
        ("// @launch finish grid=(1,1,1,1) block=(1) args=()", (1, 24), "not 4"),
        ("// @launch finish grid=((1) block=(1) args=()", (1, 24), "unbalanced `(`"),
        ("// @launch finish grid=(1)) block=(1) args=()", (1, 27), "unbalanced `)`"),
        ("// @launch finish grid=(1) grid=(1) block=(1) args=()", (1, 28), "given twice"),
        ("// @launch finish gird=(1) block=(1) args=()", (1, 19), "did you mean `grid`?"),
        (
            "// @launch finish grid=(1) block=(1) args=(A)",
            (1, 12),
            "takes 4 arguments, `args=` has 1",
        ),
        ("// @launch finnish grid=(1) block=(1) args=(A)", (1, 12), "did you mean `finish`?"),
        ("// @launch finish grid=(1,) block=(1) args=(A)", (1, 27), "expected a value"),
        ("\n\n  // @lunch x", (3, 6), "did you mean `@launch`?"),
        (LAUNCH + "// @tune X", (2, 10), "write `@tune"),
        (LAUNCH + "// @tune X =", (2, 13), "needs integers"),
        (LAUNCH + "// @tune X = 1, two", (2, 17), "found `two`"),
        (LAUNCH + "// @scratch p", (2, 13), "write `@scratch"),
        (
            LAUNCH + "// @scratch p bytes=4\n// @scratch p bytes=8",
            (3, 13),
            "already defined on line 2",
        ),
        (LAUNCH + "// @tune p = 1\n// @scratch p bytes=8", (2, 10), "already defined on line 3"),
        (LAUNCH + "// @requires", (2, 13), "needs a condition"),
        (
            "/* \u00e9 */ // @launch finish grid=(1,?) block=(1) args=()",
            (1, 35),
            "expected a value",
        ),
        (LAUNCH * 17, (17, 12), "more than 16 launches"),
    ],
)
def test_wrong_directive(directives: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(directives + "\n" + BODY)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("grid=(1)", "grid=(K)", "unknown name `K`"),
        ("grid=(1)", "grid=(griddim.x)", "did you mean `gridDim.x`?"),
        ("grid=(1)", "grid=(TIEL)", "did you mean `TILE`?"),
        ("grid=(1)", "grid=(0)", "it must be 1 to 2147483647"),
        ("grid=(1)", "grid=(1, 65536)", "it must be 1 to 65535"),
        ("grid=(1)", "grid=(N - 1024)", "`N - 1024` is 0"),
        ("grid=(1)", "grid=(A)", "not an integer"),
        ("grid=(1)", "grid=(0.5)", "0.5, not an integer"),
        ("block=(1)", "block=(1025)", "it must be 1 to 1024"),
        ("block=(1)", "block=(64, 32)", "2048 threads"),
        ("block=(1)", "block=(1, 1, 65)", "it must be 1 to 64"),
        ("args=", "smem=232449 args=", "it must be 0 to 232448"),
        ("args=", "smem=0-1 args=", "it must be 0 to 232448"),
        ("// @launch", "// @scratch p bytes=N*N*N*N\n// @launch", "scratch size"),
        ("// @launch", "// @scratch p bytes=0\n// @launch", "scratch size"),
        (
            "// @launch",
            "// @scratch p bytes=5*N*N*N\n// @scratch q bytes=5*N*N*N\n// @launch",
            "exceed 8 GiB together",
        ),
    ],
)
def test_wrong_value(
    old: str, new: str, message: str, naive_kernel: Kernel, workload: Workload
) -> None:
    text = "// @tune TILE = 8\n" + LAUNCH.replace(old, new) + BODY
    with pytest.raises(PlanError) as caught:
        resolve(make_rewrite(text, "user", "t", "w"), naive_kernel, workload)
    assert message in caught.value.message
    assert caught.value.line in (2, 3, 4)


def test_other_comments_are_left_alone() -> None:
    text = '// @param x\n// @brief\n/* @launch nothing */\nconst char* s = "// @launch no";\n'
    assert len(parse_plan(text + LAUNCH + BODY).launches) == 1
