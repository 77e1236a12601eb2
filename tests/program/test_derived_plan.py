"""Which launches of a program stand for the author's one, and how they are written as a plan."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cudaops.domain.execution import RecordedLaunch
from cudaops.domain.workload import Argument
from cudaops.errors import InputError
from cudaops.program.buffers import spelled_memory
from cudaops.program.derived_plan import derived_plan
from cudaops.program.plan_text import Packed, PlanText, StructurePointer
from tests.program.recordings import launch, number, parse, pointer, side, structure, workload_of

HEAD = """
__global__ void sum(const float* x, float* out, float f, int n) { out[0] += f * x[n - 1]; }
__global__ void other(float* out) { out[0] *= 2; }
"""
AUTHOR = HEAD + (
    "int main() { float *d_x, *d_out; int n = 64;\n"
    "sum<<<4, 128>>>(d_x, d_out, 0.5f, n); other<<<1, 1>>>(d_out); }\n"
)
X, OUT = (256, "x", "x"), (4, "zero", "result")


def author(n: int = 64, grid: int = 4) -> RecordedLaunch:
    arguments = [pointer("x", 0), pointer("out", 1), number("f", 0.5), number("n", n)]
    return launch("sum", arguments, [X, OUT], read_only=["x"], grid=grid)


def plan(candidate: str, seen: Sequence[RecordedLaunch], *authors: RecordedLaunch) -> PlanText:
    """The plan of a program with these kernels and launches, in place of `sum`."""
    known = authors or (author(),)
    baseline = parse(AUTHOR)
    return derived_plan(
        side(baseline, *known),
        baseline.kernel("sum"),
        [workload_of(one, f"w{i}") for i, one in enumerate(known)],
        side(parse(HEAD + candidate), *seen),
    )


def lines(found: PlanText) -> list[str]:
    return [
        line.removeprefix("// @").replace(" smem=0", "") for line in found.directives.splitlines()
    ]


PINS = ["requires n == 64"]


def test_a_renamed_kernel_with_renamed_and_reordered_parameters() -> None:
    code = (
        "__global__ void fast(int count, float* result, const float* values, float factor) {}\n"
        "int main() { float *a, *b; fast<<<2, 256>>>(64, b, a, 0.5f); }\n"
    )
    arguments = [number("count", 64), pointer("result", 0), pointer("values", 1),
                 number("factor", 0.5)]  # fmt: skip
    seen = launch("fast", arguments, [OUT, X], grid=2, block=256, read_only=["values"])
    assert lines(plan(code, [seen])) == [
        "launch fast grid=(2,1,1) block=(256,1,1) args=(n, out, x, f)",
        *PINS,
    ]


def test_a_parameter_without_const_matches_memory_that_it_leaves_alone() -> None:
    code = (
        "__global__ void fast(float* x, float* out, float f, int n) {}\n"
        "int main() { float *d_x, *d_out; fast<<<2, 64>>>(d_x, d_out, 0.5f, 64); }\n"
    )
    arguments = [pointer("x", 0), pointer("out", 1), number("f", 0.5), number("n", 64)]
    assert lines(plan(code, [launch("fast", arguments, [X, OUT], grid=2, block=64)])) == [
        "launch fast grid=(2,1,1) block=(64,1,1) args=(x, out, f, n)",
        *PINS,
    ]


TWO_STEPS = (
    "__global__ void parts(const float* x, float* p, int n) {}\n"
    "__global__ void join(const float* p, float* out, float f, int parts) {}\n"
    "int main() { float *d_x, *d_p, *d_out;\n"
    "parts<<<8, 64>>>(d_x, d_p, 64); join<<<1, 32>>>(d_p, d_out, 0.5f, 8); }\n"
)
PARTS = launch("parts", [pointer("x", 0), pointer("p", 1), number("n", 64)],
               [X, (32, "zero", "parts")], grid=8, block=64, read_only=["x"])  # fmt: skip
JOIN_ARGUMENTS = [pointer("p", 0), pointer("out", 1), number("f", 0.5), number("parts", 8)]
JOIN = launch("join", JOIN_ARGUMENTS, [(32, "parts", "parts"), (4, "zero", "nearly")],
              grid=1, block=32, site=1, read_only=["p"])  # fmt: skip


def test_two_kernels_and_the_memory_between_them() -> None:
    """The sum differs in its last place: names say what contents do not."""
    found = plan(TWO_STEPS, [PARTS, JOIN])
    assert lines(found) == [
        "scratch scratch0 bytes=32",
        "launch parts grid=(8,1,1) block=(64,1,1) args=(x, scratch0, n)",
        "launch join grid=(1,1,1) block=(32,1,1) args=(scratch0, out, f, 8)",
        *PINS,
    ]
    assert found.kernels == ("parts", "join")


def test_a_grid_and_a_workspace_of_its_own_follow_from_the_authors_numbers() -> None:
    """A warp for each of 200 numbers and 8 bytes of workspace a number, for every size."""
    code = (
        "__global__ void parts(const float* x, float* p, int n) {}\n"
        "__global__ void join(const float* p, float* out, float f, int slots) {}\n"
        "int main() { float *d_x, *d_p, *d_out; int n = 200;\n"
        "parts<<<25, 256>>>(d_x, d_p, n); join<<<4, 128>>>(d_p, d_out, 0.5f, 400); }\n"
    )
    parts = launch("parts", [pointer("x", 0), pointer("p", 1), number("n", 200)],
                   [X, (1600, "zero", "parts")], grid=25, block=256, read_only=["x"])  # fmt: skip
    slots = [*JOIN_ARGUMENTS[:3], number("slots", 400)]
    join = launch("join", slots, [(1600, "parts", "parts"), (4, "zero", "nearly")],
                  grid=4, block=128, site=1, read_only=["p"])  # fmt: skip
    baseline, known = parse(AUTHOR), author(200)
    found = derived_plan(
        side(baseline, known), baseline.kernel("sum"), [workload_of(known, "w0")],
        side(parse(HEAD + code), parts, join), general=True,
    )  # fmt: skip
    assert lines(found) == [
        "scratch scratch0 bytes=8 * n",
        (
            "launch parts grid=(ceil_div(n, 8),gridDim.y,gridDim.z) block=(256,1,1) "
            "args=(x, scratch0, n)"
        ),
        (
            "launch join grid=(gridDim.x,gridDim.y,gridDim.z) block=(128,1,1) "
            "args=(scratch0, out, f, 2 * n)"
        ),
    ]


def test_what_both_programs_launch_alike_is_no_part_of_it() -> None:
    after = launch("other", [pointer("out", 0)], [(4, "nearly", "twice")], grid=1, block=1, site=2)
    code = TWO_STEPS.replace("; }\n", "; other<<<1, 1>>>(d_out); }\n")
    assert plan(code, [PARTS, JOIN, after]).kernels == ("parts", "join")


def test_memory_that_host_code_clears_is_cleared_by_a_kernel() -> None:
    code = (
        "__global__ void gather(const float* x, float* raw) {}\n"
        "__global__ void scale(float* raw, float* out, float f) {}\n"
        "int main() { float *d_x, *d_raw, *d_out; cudaMemset(d_raw, 0x7f, 4);\n"
        "gather<<<8, 64>>>(d_x, d_raw); scale<<<1, 1>>>(d_raw, d_out, 0.5f); }\n"
    )
    gather = launch("gather", [pointer("x", 0), pointer("raw", 1)], [X, (4, "set", "raw")],
                    grid=8, block=64, read_only=["x"])  # fmt: skip
    arguments = [pointer("raw", 0), pointer("out", 1), number("f", 0.5)]
    memory = [(4, "raw", "raw"), OUT]
    found = plan(code, [gather, launch("scale", arguments, memory, grid=1, block=1, site=1)])
    assert lines(found)[1] == (
        "launch fill_memory grid=(1,1,1) block=(256,1,1) args=(scratch0, 127, 4)"
    )
    assert "__global__ void fill_memory" in found.helpers
    assert found.kernels == ("gather", "scale")


def test_a_result_that_both_programs_clear_is_left_to_them() -> None:
    """The author's kernel adds to what it finds, and so does the other one."""
    author_text = AUTHOR.replace("int n = 64;", "int n = 64; cudaMemset(d_out, 0, 4);")
    code = (
        "__global__ void add(const float* x, float* total, float f, int n) {}\n"
        "int main() { float *d_x, *d_total; cudaMemset(d_total, 0, 4);\n"
        "add<<<8, 64>>>(d_x, d_total, 0.5f, 64); }\n"
    )
    arguments = [pointer("x", 0), pointer("total", 1), number("f", 0.5), number("n", 64)]
    add = launch("add", arguments, [X, OUT], grid=8, block=64, read_only=["x"])
    baseline = parse(author_text)
    one = author()
    found = derived_plan(
        side(baseline, one), baseline.kernel("sum"), [workload_of(one)], side(parse(code), add)
    )
    assert "fill_memory" not in found.directives


def test_a_kernel_that_prepares_the_result_belongs_to_it() -> None:
    code = (
        "__global__ void clear(float* out) {}\n"
        "__global__ void add(const float* x, float* out, float f, int n) {}\n"
        "int main() { float *d_x, *d_out;\n"
        "clear<<<1, 1>>>(d_out); add<<<8, 64>>>(d_x, d_out, 0.5f, 64); }\n"
    )
    clear = launch("clear", [pointer("out", 0)], [(4, "zero", "zero")], grid=1, block=1)
    arguments = [pointer("x", 0), pointer("out", 1), number("f", 0.5), number("n", 64)]
    add = launch("add", arguments, [X, (4, "zero", "nearly")], grid=8, block=64, site=1,
                 read_only=["x"])  # fmt: skip
    assert plan(code, [clear, add]).kernels == ("clear", "add")


def test_several_passes_of_one_kernel_in_place() -> None:
    """As many launches as lead from what the author's kernel finds to what it leaves."""
    code = (
        "__global__ void pass(float* out, int step) {}\n"
        "int main() { float *d_out; for (int s = 0; s < 3; ++s) pass<<<1, 32>>>(d_out, s); }\n"
    )
    passes = [
        launch("pass", [pointer("out", 0), number("step", i)], [(4, before, after)], grid=1)
        for i, (before, after) in enumerate([("zero", "p"), ("p", "q"), ("q", "result")])
    ]
    found = [line for line in lines(plan(code, passes)) if line.startswith("launch")]
    assert [line.partition("args=")[2] for line in found] == ["(out, 0)", "(out, 1)", "(out, 2)"]


def test_launches_of_several_sizes() -> None:
    authors = [author(64), author(128, grid=8)]
    code = (
        "__global__ void fast(const float* x, float* out, float f, int quads) {}\n"
        "int main() { float *d_x, *d_out; fast<<<2, 64>>>(d_x, d_out, 0.5f, 16); }\n"
    )
    seen = []
    for index, quads in enumerate((16, 32)):
        arguments = [pointer("x", 0), pointer("out", 1), number("f", 0.5), number("quads", quads)]
        memory = [X, (4, "zero", "result")]
        seen.append(launch("fast", arguments, memory, grid=2 + index, block=64, read_only=["x"]))
    found = lines(plan(code, seen, *authors))
    assert found[-1] == "requires n == 64 || n == 128"
    assert "args=(x, out, f, " in found[0]


def test_a_structure_is_put_together_from_words() -> None:
    code = (
        "struct Task { const float* x; float* out; int n; float f; };\n"
        "__global__ void __launch_bounds__(64) task(Task t) {}\n"
        "int main() { float *d_x, *d_out; task<<<2, 64>>>({d_x, d_out, 64, 0.5f}); }\n"
    )
    raw = "00" * 16 + "40000000" + "0000003f"
    seen = launch("task", [structure("t", raw, x=(0, 0), out=(8, 1))], [X, OUT], grid=2, block=64)
    found = plan(code, [seen])
    assert lines(found) == [
        "launch task_entry grid=(2,1,1) block=(64,1,1) args=(x, out, 4539628424389460032)",
        *PINS,
        "requires f == 0.5",
    ]
    (made,) = found.entries["task"].values()
    assert isinstance(made, Packed)
    assert made.words() == [0, 0, 4539628424389460032]


def fast(parameters: str, given: str, above: str = "", first: str = "") -> str:
    """A program whose one kernel takes and is given this."""
    kernel = f"__global__ void fast({parameters}) {{ {above and 'out[0] = table[0];'} }}"
    main = "int main() { float *d_x, *d_t, *d_out, h[16]; double* d_all;"
    return f"{above}\n{kernel}\n{main} {first} fast<<<1, 1>>>({given}); }}\n"


TABLE = (64, "t", "t")
POINTERS = [pointer("x", 0), pointer("out", 1)]
TAKES_BOTH = "const float* x, float* out"


def test_members_of_the_authors_structure_are_taken_from_it() -> None:
    text = (
        "struct Task { const float* x; float* out; };\n"
        "__global__ void sum(Task task, int n) { task.out[0] += task.x[n - 1]; }\n"
        "int main() { float *d_x, *d_out; sum<<<4, 128>>>(Task{d_x, d_out}, 64); }\n"
    )
    task = structure("task", "00" * 16, x=(0, 0), out=(8, 1))
    one = launch("sum", [task, number("n", 64)], [X, OUT])
    code = (
        "__global__ void fast(const float* __restrict__ x, float* out, int n) {}\n"
        "int main() { float *d_x, *d_out; fast<<<2, 64>>>(d_x + 4, d_out, 64); }\n"
    )
    arguments = [pointer("x", 0, 16), pointer("out", 1), number("n", 64)]
    seen = launch("fast", arguments, [X, OUT], grid=2, block=64, read_only=["x"])
    baseline = parse(text)
    found = derived_plan(
        side(baseline, one), baseline.kernel("sum"), [workload_of(one)], side(parse(code), seen)
    )
    assert lines(found) == [
        "launch fast_entry grid=(2,1,1) block=(64,1,1) args=(n, task)",
        *PINS,
        "requires gridDim.x == 4",
        "requires gridDim.y == 1",
        "requires gridDim.z == 1",
    ]
    x, out = StructurePointer("task", "task.x", 16), StructurePointer("task", "task.out", 0)
    assert found.entries["fast"] == {0: x, 1: out}


def test_inputs_that_are_other_ones_are_known_by_their_names() -> None:
    baseline = parse(AUTHOR)
    one = author()
    arguments = [pointer("x", 0), pointer("out", 1), number("n", 64)]
    seen = launch("fast", arguments, [(256, "drawn", "drawn"), (4, "zero", "r")], read_only=["x"])
    found = derived_plan(
        side(baseline, one),
        baseline.kernel("sum"),
        [workload_of(one)],
        side(parse(fast(TAKES_BOTH + ", int n", "d_x, d_out, 64")), seen),
        same_inputs=False,
    )
    assert lines(found)[0].endswith("args=(x, out, n)")


def test_a_structure_with_bytes_that_nobody_set_is_known_by_its_name() -> None:
    baseline = parse(
        "struct Task { const float* x; float* out; int n; };\n"
        "__global__ void sum(Task task) { task.out[0] += task.x[0]; }\n"
        "int main() { float *d_x, *d_out; sum<<<4, 128>>>(Task{d_x, d_out, 64}); }\n"
    )

    def given(padding: str) -> list[Argument]:
        return [structure("task", "00" * 16 + "40000000" + padding, x=(0, 0), out=(8, 1))]

    one = launch("sum", given("11111111"), [X, OUT])
    other = baseline.model_copy(update={"files": baseline.files})
    seen = side(other, launch("sum", given("22222222"), [X, OUT], grid=2))
    kernel, workloads = baseline.kernel("sum"), [workload_of(one)]
    found = derived_plan(side(baseline, one), kernel, workloads, seen, same_inputs=False)
    assert lines(found)[0] == "launch sum grid=(2,1,1) block=(128,1,1) args=(task)"


def test_a_run_that_was_recorded_otherwise() -> None:
    baseline = parse(AUTHOR)
    seen = side(parse(TWO_STEPS), PARTS, JOIN)
    with pytest.raises(InputError, match="recorded by an older cudaops; open it again"):
        derived_plan(side(baseline), baseline.kernel("sum"), [workload_of(author())], seen)


REFUSED = {
    "a pack": (
        fast("const float* x, float* out, int... n", "d_x, d_out, 1, 2"),
        launch("fast", [*POINTERS, number("n", 1), number("m", 2)], [X, OUT], read_only=["x"]),
        "`fast` takes a pack of 2 parameters as `n`, which a plan cannot spell",
    ),
    "made ready in another way": (
        fast(TAKES_BOTH + ", int n", "d_x, d_out, 64"),
        launch(
            "fast",
            [pointer("x", 0), pointer("out", 1), number("n", 64)],
            [(256, "turned", "turned"), OUT],
            read_only=["x"],
        ),
        "parameter `x` of `fast` holds other bytes than `x` of `sum`",
    ),
    "filled by the host": (
        fast("const float* x, const float* table, float* out", "d_x, d_t, d_out"),
        launch(
            "fast",
            [pointer("x", 0), pointer("table", 1), pointer("out", 2)],
            [X, TABLE, OUT],
            read_only=["x", "table"],
        ),
        "parameter `table` of `fast` reads 64 bytes that host code filled, and `sum` is given no ",
    ),
    "of another size": (
        fast(TAKES_BOTH, "d_x, d_out"),
        launch("fast", POINTERS, [(512, "padded", "padded"), OUT], read_only=["x"]),
        "parameter `x` of `fast` has 512 bytes, where `sum` has 256",
    ),
    "other sizes": (
        fast(TAKES_BOTH + ", int n", "d_x, d_out, 32"),
        launch(
            "fast",
            [*POINTERS, number("n", 32)],
            [(128, "y", "y"), (8, "zero", "r")],
            read_only=["x"],
        ),
        "it launches its kernel for other sizes: n == 32 does not hold here",
    ),
    "not followed": (
        fast("float** x", "0"),
        launch("fast", [], problem="parameter x points to pointers"),
        "a launch of `fast` cannot be followed: parameter x points to pointers",
    ),
    "writes something else": (
        fast("const float* x, double* all", "d_x, d_all"),
        launch(
            "fast",
            [pointer("x", 0), pointer("all", 1, element="f64")],
            [X, (8, "zero", "r")],
            read_only=["x"],
        ),
        "none of its new kernels (`fast`) writes what `sum` writes, `out` (4 bytes)",
    ),
    "a symbol": (
        fast(TAKES_BOTH, "d_x, d_out", "__constant__ float table[16];",
             "cudaMemcpyToSymbol(table, h, 64);"),
        launch("fast", POINTERS, [X, OUT], read_only=["x"]),
        "`table` is filled by host code (cudaMemcpyToSymbol)",
    ),
    "a launch that is not seen": (
        "int main() { cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0); }\n",
        None,
        "it launches by `cuLaunchKernel`, which is not seen",
    ),
    "nothing": ("int main() {}\n", None, "it launches nothing instead of `sum`"),
    "not finite": (
        fast(TAKES_BOTH + ", float least", "d_x, d_out, -INFINITY"),
        launch("fast", [*POINTERS, number("least", float("-inf"))], [X, OUT], read_only=["x"]),
        "a launch is given -inf, which no plan can say",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_over_is_named_in_one_line(case: str) -> None:
    code, seen, says = REFUSED[case]
    with pytest.raises(InputError) as refused:
        plan(code, [] if seen is None else [seen])
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("written", "memory"),
    [
        ("d_in", "d_in"),
        ("(const float4*)d_in + n", "d_in"),
        ("reinterpret_cast<float4*>(d_in)", "d_in"),
        ("thrust::raw_pointer_cast(v.data())", "v"),
        ("&d_in[0]", "d_in"),
        ("(float*)&rows[i]", "rows"),
        ("self->field", "self->field"),
        ("buffers[1]", "buffers[1]"),
        ("3 + x", "3"),
    ],
)
def test_what_host_code_calls_memory(written: str, memory: str) -> None:
    assert spelled_memory(written) == memory
