"""What the analysis finds in kernels: accesses, loops, barriers, intervals, dependences."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.program import SourceFile
from cudaops.program.analysis.facts import Access, KernelFacts, varies_in_block
from cudaops.program.analysis.intervals import Interval
from cudaops.program.analysis.kernel import analyse
from cudaops.program.analysis.polynomials import number
from cudaops.program.analysis.summary import summarise
from cudaops.program.analysis.values import Launched
from cudaops.program.front_end import kernel_form
from cudaops.program.parse import load_program, parse_files

ROOT = Path(__file__).parents[2]
PARAMETERS = "float* a, const float* b, const int* at, int n, int w"
WHERE = "blockDim.x * blockIdx.x + threadIdx.x"
PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
SIZES = Launched(
    {"gridDim.x": Interval(8, 8), "blockDim.x": Interval(64, 64), "n": Interval(500, 500),
     "blockDim.y": Interval(1, 1), "gridDim.y": Interval(1, 1), "w": Interval(10, 10)}
)  # fmt: skip


def facts_of(
    body: str, before: str = "", parameters: str = PARAMETERS, launched: Launched | None = None
) -> KernelFacts:
    text = f"{before}\n__global__ void k({parameters}) {{ {body} }}"
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    return analyse(kernel_form(program, program.kernels[-1]), launched)


def described(access: Access) -> str:
    """`read b float [i + 4]`: the index without the numbers that tell loops apart."""
    index = "?" if access.index is None else access.index.text(lambda n: n.partition("#")[0])
    return f"{access.kind} {access.array}{access.member} {access.type} [{index}]"


ACCESSES: dict[str, list[str]] = {
    "a[threadIdx.x] = b[n];": ["read b float [n]", "write a float [threadIdx.x]"],
    "a[n] += 1;": ["read a float [n]", "write a float [n]"],
    "*a = *(b + 2);": ["read b float [2]", "write a float [0]"],
    "float* p = a + n; p += 4; p[1] = 0; p[-n] = 1;": [
        "write a float [n + 5]", "write a float [4]"],
    "a[at[n]] = 1;": ["read at int [n]", "write a float [at[..]]"],
    "reinterpret_cast<float4*>(a)[n].x = 1;": ["write a.x float4 [n]"],
    "const float4 v = ((const float4*)(b + 4 * n))[2]; a[0] = v.y;": [
        "read b float4 [n + 2]", "write a float [0]"],
    "atomicAdd(&a[n % 8], b[0]);": ["read b float [0]", "atomic a float [((n) % (8))]"],
    "a[n] = __ldg(b + w);": ["read b float [w]", "write a float [n]"],
    "__shared__ float t[4][33]; t[threadIdx.y][threadIdx.x] = 1;": [
        "write t float [threadIdx.x + 33 * threadIdx.y]"],
    "extern __shared__ char raw[]; double* d = (double*)raw + n; d[w] = 1;": [
        "write raw double [n + w]"],
    "__shared__ float one; one = b[0]; a[0] = one;": [
        "read b float [0]", "write one float [0]", "read one float [0]", "write a float [0]"],
    "float r[4]; r[n] = 1; a[0] = r[w];": [
        "write r float [n]", "read r float [w]", "write a float [0]"],
    "float x = 1; float& y = x; y = 2; a[0] = x;": ["write a float [0]"],
    "float& y = a[w]; y = 2;": ["write a float [w]"],
    "for (int k = 0; k < n; k++) a[k * w] = 0;": ["write a float [k * w]"],
    "for (int k = n - 1; k >= 0; --k) a[k] = 0;": ["write a float [-k + n - 1]"],
    "for (int k = 3; k < n; k += w) a[k] = 0;": ["write a float [k * w + 3]"],
    "int j = 2; for (int k = 0; k < n; k++, j += 3) a[j] = 0; a[j] = 1;": [
        "write a float [3 * k + 2]", "write a float [j]"],
    "int j = 0; for (int k = 0; k < 5; k++) j += 2; a[j] = 1;": ["write a float [10]"],
    "const float* p = b; for (int k = 0; k < n; k++) { a[k] = *p++; }": [
        "read b float [k]", "write a float [k]"],
    "int k = 0; while (k < n) { a[k] = 0; k += 2; }": ["write a float [2 * k]"],
    "int k = 0; while (k++ < n) a[k] = 0;": ["write a float [k + 1]"],
    "if (n++ < 3) a[n] = 0;": ["write a float [n + 1]"],
    "for (int s = 16; s > 0; s /= 2) a[s] = 0;": ["write a float [s]"],
    "if (threadIdx.x / 4 == 1) a[threadIdx.x >> 2] = 0;": ["write a float [((threadIdx.x) / (4))]"],
    f"{PLACE} int r = i / w, c = i % w; a[r * w + c] = b[r + w * c];": [
        f"read b float [(({WHERE}) / (w)) + (({WHERE}) % (w)) * w]",
        f"write a float [{WHERE}]"],
    "a[min(n, w)] = 0;": ["write a float [min(..)]"],
    "a[n > 3 ? n : n] = 0;": ["write a float [n]"],
    "a[n > 3 ? n : w] = 0;": ["write a float [..?..:..]"],
    "if (false) a[0] = 1; else a[1] = 1;": ["write a float [1]"],
    "switch (n) { case 1: a[1] = 0; break; default: a[2] = 0; } a[3] = 0;": [
        "write a float [1]", "write a float [2]", "write a float [3]"],
    "return; a[0] = 1;": [],
}  # fmt: skip


@pytest.mark.parametrize("body", ACCESSES)
def test_accesses_and_their_indices(body: str) -> None:
    assert [described(a) for a in facts_of(body).accesses] == ACCESSES[body]


FIXED = (
    "a[threadIdx.x] = b[n];",
    "for (int k = 0; k < n; k++) a[threadIdx.x] = __all_sync(0xffffffffu, at[threadIdx.x]);",
    "if (threadIdx.x < n) { int v = at[threadIdx.x] * 3 + 1; a[threadIdx.x] = v > 4 ? v : n; }",
    "__shared__ int t[64]; t[threadIdx.x] = at[threadIdx.x]; __syncthreads(); a[n] = t[w];",
    "atomicAdd(&a[n], b[w]);",
)
MOVING = (
    "a[at[n]] = 1;",
    "int v = at[n]; v += 2; if (w > 3) v = n; a[v] = 1;",
    "if (at[n] > 3) a[n] = 1;",
    "if (at[n] > 3) return; a[n] = 1;",
    "for (int k = 0; k < at[n]; k++) a[k] = 1;",
    "for (int k = 0; k < n; k++) { if (at[k] == 3) break; a[k] = 1; }",
    "int k = 0; while (at[w] > k) k += 2; a[k] = 1;",
    "int k = 0; for (int j = 0; j < at[w]; j++) k++; a[k] = 1;",
    "__shared__ int t[64]; t[threadIdx.x] = at[threadIdx.x]; __syncthreads(); a[t[w]] = 1;",
    "int own[4]; own[w] = at[n]; a[own[n]] = 1;",
    "int v = __shfl_sync(0xffffffffu, at[n], 3); a[v] = 1;",
    "int v = __any_sync(0xffffffffu, at[n] > 2); a[v] = 1;",
    "int v = (int)b[n]; a[v] = 1;",
    "const int* p = at + at[n]; a[n] = p[0];",
    "const int* p = at; for (int k = 0; k < n; k++) p += at[k]; a[n] = *p;",
    "a[n] = at[n] > 3 ? b[w] : 0.0f;",
    "if (at[n] > 3 && b[w] > 2.0f) { }",
    "switch (at[n]) { case 1: a[n] = 1; break; default: a[w] = 1; }",
    "int v = atomicAdd((int*)a, 1); a[v] = 1;",
    "unknown(a, at[n]);",
)


@pytest.mark.parametrize("body", FIXED)
def test_what_touches_the_same_places_whatever_it_reads(body: str) -> None:
    assert facts_of(body).touches_the_same


@pytest.mark.parametrize("body", MOVING)
def test_what_touches_other_places_where_it_reads_something_else(body: str) -> None:
    before = "__device__ void unknown(float*, int);"
    assert not facts_of(body, before).touches_the_same


@pytest.mark.parametrize(
    ("body", "is_idempotent"),
    [
        ("a[threadIdx.x] = b[n] + at[w];", True),
        ("__shared__ int t[64]; t[threadIdx.x] = at[w]; a[n] = t[0]; t[1] = t[2];", True),
        ("for (int k = 0; k < at[n]; k++) a[k] = 1;", True),
        ("a[n] = a[w];", False),
        ("a[n] += 1;", False),
        ("atomicAdd(&a[n], b[w]);", False),
        ("total = at[n];", False),
        ("a[n] = total;", True),
        ("unknown(a, at[n]);", False),
    ],
)
def test_what_leaves_the_same_when_it_is_launched_again(body: str, is_idempotent: bool) -> None:
    before = "__device__ void unknown(float*, int); __device__ int total;"
    assert facts_of(body, before).is_idempotent is is_idempotent


@pytest.mark.parametrize(
    ("body", "scatters"),
    [
        ("a[threadIdx.x] = at[n];", False),
        ("if (at[n] > 3) a[threadIdx.x] = 1;", False),
        ("atomicAdd(&a[at[n]], 1.0f);", False),
        ("__shared__ int t[64]; t[at[n]] = 1; a[threadIdx.x] = t[w];", False),
        ("a[threadIdx.x] = b[at[n]];", False),
        ("a[at[threadIdx.x]] = 1;", True),
        ("if (at[threadIdx.x] > 3) a[blockIdx.x] = threadIdx.x;", True),
        ("if (at[n] > 3) return; a[n] = threadIdx.x;", True),
        ("unknown(a, at[n]);", True),
    ],
)
def test_where_threads_may_meet(body: str, scatters: bool) -> None:
    before = "__device__ void unknown(float*, int);"
    assert facts_of(body, before).scatters is scatters


def test_functions_are_followed_where_they_are_called() -> None:
    before = """
        struct View { float* data; int pitch; __device__ float& at(int r, int c) {
            return data[r * pitch + c]; } };
        __device__ int twice(int x) { if (x < 0) return 0; return 2 * x; }
        __device__ void add(float& sum, const float* p, int i) { sum += p[twice(i)]; }
        __device__ void bump(int& i) { i += 7; }
    """
    body = "float s = 0; add(s, b, 3); int j = n; bump(j); a[j] = s;"
    assert [described(a) for a in facts_of(body, before).accesses] == [
        "read b float [6]", "write a float [n + 7]",
    ]  # fmt: skip
    found = facts_of("v.data[v.pitch * n + 1] = 2;", before, "View v, int n")
    assert [described(a) for a in found.accesses] == ["write v.data float [n * v.pitch + 1]"]


def test_variables_of_the_module_and_tables_of_pointers() -> None:
    before = "__constant__ float taps[3][5]; __device__ int hits; struct T { float* to[4]; };"
    found = facts_of("t.to[n][w] = taps[1][n]; hits = 1;", before, "T t, int n, int w")
    assert [described(a) for a in found.accesses] == [
        "read taps float [n + 5]", "write t.to[..] float [w]", "write hits int [0]",
    ]  # fmt: skip
    assert [a.space for a in found.accesses] == ["module", "global", "module"]


def test_strides_of_neighbours() -> None:
    (read, write) = facts_of(f"{PLACE} a[i * w] = b[i];").accesses
    assert read.stride_bytes("threadIdx.x") == number(4)
    assert read.stride_bytes("threadIdx.y") == number(0)
    stride = write.stride_bytes("threadIdx.x")
    assert stride is not None
    assert stride.text() == "4 * w"


LOOPS: dict[str, tuple[str | None, str, str]] = {
    "for (int k = 0; k < n; k++) a[k] = 0;": ("n", "500..500", "0"),
    "for (int k = 2; k <= 9; k += 3) a[k] = 0;": ("3", "3..3", "2"),
    "for (int k = 9; k > 2; k -= 2) a[k] = 0;": ("4", "4..4", "9"),
    "for (int k = 0; k != n; k++) a[k] = 0;": ("n", "500..500", "0"),
    "int k = 0; while (k < w) { a[k] = 0; ++k; }": ("w", "10..10", "0"),
    "for (int k = 0; k < n && b[k] > 0; k++) a[k] = 0;": ("n", "500..500", "0"),
    "for (int k = 0; ; k++) { if (b[k] > 0) break; }": (None, "0..", "0"),
    "for (int k = 0; k < at[0]; k++) a[k] = 0;": ("at[..]", "0..2147483647", "0"),
    "for (int k = 0; k < a[0]; k++) a[k] = 0;": (None, "0..", "0"),
}


@pytest.mark.parametrize("body", LOOPS)
def test_loops(body: str) -> None:
    count, trips, start = LOOPS[body]
    (loop,) = facts_of(body, launched=SIZES).loops
    found = loop.count.text(lambda name: name.partition("#")[0]) if loop.count else None
    assert (found, loop.trips.text()) == (count, trips)
    assert loop.variable == "k"
    assert loop.start is not None
    assert loop.start.text() == start


def test_a_loop_that_ends_early_and_one_whose_end_depends_on_the_thread() -> None:
    early, plain, own = facts_of(
        f"""{PLACE} for (int k = 0; k < n; k++) {{ if (b[k] > 0) break; }}
        for (int k = 0; k < n; k++) a[k] = 0; for (int k = i; k < n; k += 32) a[k] = 1;"""
    ).loops
    assert early.ends_early
    assert not plain.ends_early
    assert not varies_in_block(plain.depends)
    assert varies_in_block(own.depends)


INTERVALS: dict[str, str] = {
    "a[threadIdx.x] = 0;": "0..63",
    f"{PLACE} a[i] = 0;": "0..511",
    f"{PLACE} if (i < n) a[i] = 0;": "0..499",
    f"{PLACE} if (i >= n) return; a[i] = 0;": "0..499",
    f"{PLACE} if (i > 0 && i < n - 1) a[i - 1] = 0;": "0..497",
    f"{PLACE} if (i < n) a[i + w] = 0;": "10..509",
    "for (int k = 0; k < w; k++) a[k * w] = 0;": "0..90",
    "for (int s = 16; s > 0; s /= 2) a[s] = 0;": "1..16",
    "a[threadIdx.x & 7] = 0;": "0..7",
    "a[threadIdx.x ^ 1] = 0;": "0..63",
    "a[threadIdx.x % 5] = 0;": "0..4",
    "a[min(n, 3)] = 0;": "3..3",
    "a[blockDim.x - 1 - threadIdx.x] = 0;": "0..63",
    "unsigned char c = n; a[c] = 0;": "0..255",
    "int j = 0; for (int k = 0; k < n; k++) if (b[k] > 0) j = k; a[j] = 0;": "0..499",
}


@pytest.mark.parametrize("body", INTERVALS)
def test_intervals_of_indices(body: str) -> None:
    writes = [a for a in facts_of(body, launched=SIZES).accesses if a.kind == "write"]
    (write,) = writes
    low, high = write.interval_bytes.low, write.interval_bytes.high
    assert low is not None
    assert high is not None
    assert Interval(low // 4, high // 4).text() == INTERVALS[body]


def test_contents_of_an_array_narrow_what_is_read_from_it() -> None:
    known = Launched(contents={"at": Interval(3, 9)})
    write = facts_of("a[at[n]] = 1;", launched=known).accesses[-1]
    assert write.interval_bytes == Interval(12, 36)


def test_what_values_depend_on() -> None:
    found = facts_of(
        f"""{PLACE} int lane = threadIdx.x % 32; int c = blockIdx.x * n; float v = b[c];
        float s = __shfl_down_sync(~0u, v, 1); int order = atomicAdd((int*)a, 1);
        int m = 0; if (threadIdx.x > 3) m = 1; a[i] = v + s + lane + order + m;"""
    )
    depends = {v.name: v.depends for v in found.variables}
    assert depends["i"] == {"threadIdx.x", "blockIdx.x"}
    assert depends["c"] == {"blockIdx.x"}
    assert depends["v"] == {"blockIdx.x", "memory"}
    assert not varies_in_block(depends["v"])
    assert all(varies_in_block(depends[name]) for name in ("lane", "s", "order", "m"))


def test_a_sum_over_a_loop_depends_on_what_is_added() -> None:
    found = facts_of("int s = 0; for (int k = 0; k < n; k++) s += at[k + threadIdx.x]; a[s] = 0;")
    assert "threadIdx.x" in found.accesses[-1].depends


BARRIERS: dict[str, list[bool]] = {
    "__syncthreads();": [False],
    "if (n > 3) __syncthreads();": [False],
    "if (threadIdx.x > 3) __syncthreads();": [True],
    f"{PLACE} if (i >= n) return; __syncthreads();": [True],
    "for (int k = 0; k < n; k++) __syncthreads();": [False],
    "for (int k = threadIdx.x; k < n; k++) __syncthreads();": [True],
    "for (int k = 0; k < n; k++) if (at[threadIdx.x]) return; __syncthreads();": [True],
}


@pytest.mark.parametrize("body", BARRIERS)
def test_barriers_that_some_threads_may_not_reach(body: str) -> None:
    assert [x.is_divergent for x in facts_of(body).barriers] == BARRIERS[body]


def test_what_is_not_understood_is_listed_and_does_not_stop_the_rest() -> None:
    body = 'asm volatile("nop;"); a[n] = b[0]; printf("%d", n);'
    found = facts_of(body, "#include <cstdio>")
    assert found.unmodelled
    assert found.calls == ("printf",)
    assert [described(a) for a in found.accesses] == ["read b float [0]", "write a float [n]"]


def test_a_pointer_that_may_be_two_is_an_unknown_place() -> None:
    found = facts_of("const float* p = n > 3 ? a : b; a[0] = p[1];")
    assert [(a.array, a.space) for a in found.accesses] == [("", "unknown"), ("a", "global")]


def test_guards_stand_at_the_accesses() -> None:
    found = facts_of(f"{PLACE} if (i < n && w > 2) a[i] = 0; else a[0] = 1;").accesses
    texts = [[g.below.text() if g.below else "?" for g in a.guards] for a in found]
    assert texts == [["blockDim.x * blockIdx.x - n + threadIdx.x", "-w + 2"], ["?"]]


def test_every_program_of_the_tests_is_followed() -> None:
    """Kernels without template parameters; a record of how many accesses are not placed."""
    placed = missed = 0
    for path in sorted((ROOT / "tests/data/programs").glob("*.cu")):
        if path.name in ("syntax_error.cu", "indirect.cu", "no_kernel.cu", "no_main.cu"):
            continue
        program = load_program(path)
        for kernel in program.kernels:
            if not kernel.template_parameters:
                for access in analyse(kernel_form(program, kernel)).accesses:
                    placed += access.index is not None
                    missed += access.index is None
    assert placed > 40
    assert missed == 0


def test_a_threads_own_array_depends_on_what_was_put_into_it() -> None:
    before = """__device__ void split(int x, int bins[2]) { bins[0] = x % 4; bins[1] = x / 4; }"""
    body = f"{PLACE} int bins[2]; split(at[i], bins); int same[2] = {{n, w}}; a[bins[1]] = same[0];"
    found = facts_of(body, before)
    assert varies_in_block(found.accesses[-1].depends)
    (own,) = (x for x in found.touching("same") if x.kind == "read")
    assert not varies_in_block(own.depends)
    held = facts_of("int x = threadIdx.x; int* p = &x; a[*p] = 0;").accesses[-1]
    assert varies_in_block(held.depends)


def test_accesses_in_words() -> None:
    text = """
        __global__ void k(float* a, const float* b, const int* at, int n, int w) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            float s = 0;
            for (int k = 0; k < w; k++) s += b[k * n + i] + b[at[i] + k] + b[i * w];
            a[i] = s;
        }"""
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    found = [
        (a.line, a.kind, a.array, a.index, a.step, a.loops, a.is_conditional)
        for a in summarise(program, program.kernels[0], ())
    ]
    assert found == [
        (6, "read", "b", "at.x + k * n", "adjacent", ("k: w x, 4 * n B",), True),
        (6, "read", "at", "at.x", "adjacent", ("k: w x, 0 B",), True),
        (6, "read", "b", "at[..] + k", "by `at`", ("k: w x, 4 B",), True),
        (6, "read", "b", "at.x * w", "4 * w B apart", ("k: w x, 0 B",), True),
        (7, "write", "a", "at.x", "adjacent", (), True),
    ]


def test_a_loop_whose_end_is_read_from_memory_has_unknown_trips() -> None:
    text = """
        __global__ void k(const int* row_start, const float* v, float* out) {
            int row = blockIdx.x * blockDim.x + threadIdx.x;
            float s = 0;
            for (int j = row_start[row]; j < row_start[row + 1]; ++j) s += v[j];
            out[row] = s;
        }"""
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    found = {a.array: a.loops for a in summarise(program, program.kernels[0], ())}
    assert found["v"] == ("j: ?x, 4 B",)
