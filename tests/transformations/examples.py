"""One kernel before and after each transformation: `docs/transformations.md` is made of them.

`python -m tests.transformations.examples` writes the page anew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.program import SourceFile
from cudaops.program.parse import parse_files
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Subject
from cudaops.transformations.registry import TRANSFORMATIONS, transformation
from tests.recipes.bench import Array, workload_of

PAGE = Path(__file__).parents[2] / "docs" / "transformations.md"

Values = dict[str, Array | int | float]


class Example(NamedTuple):
    """One kernel, a launch of it, and what is done to it."""

    source: str
    arguments: Values
    grid: tuple[int, ...] = (4,)
    block: tuple[int, ...] = (64,)
    setting: Setting | None = None
    """None: the first that is offered."""


def _floats(count: int) -> Array:
    return (np.arange(count) % 13).astype(np.float32)


def _ints(count: int) -> Array:
    return (np.arange(count) % 13).astype(np.int32)


_SCALE = """__global__ void scale(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}"""
_SCALED: Values = {"x": _floats(256), "y": _floats(256), "by": 0.5, "n": 250}
_ROWS = """__global__ void row_sums(const float* a, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < columns; ++k) sum += a[row * columns + k];
    y[row] = sum;
}"""
_MEANS = """__global__ void means(const float* x, float* y, int m) {
    const int row = blockIdx.x;
    int taken = 0;
    float mean = 0.0f;
    for (int k = threadIdx.x; k < m; k += blockDim.x) {
        taken++;
        mean += (x[row * m + k] - mean) / taken;
    }
    y[row * blockDim.x + threadIdx.x] = mean;
}"""
_MEANT: Values = {"x": _floats(4000), "y": _floats(256), "m": 1000}
_FILLED = """__global__ void halves(const float* x, float* y, int m) {
    const int row = blockIdx.x;
    for (int k = threadIdx.x; k < m; k += blockDim.x) y[row * m + k] = 0.5f * x[row * m + k];
}"""
_SUMMED: Values = {"a": _floats(250 * 40), "y": _floats(250), "rows": 250, "columns": 40}
_TREE = """__global__ void block_sums(const float* a, float* y, int n) {
    __shared__ float part[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}"""
_COUNT = """__global__ void count(const int* values, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[values[i]], 1);
}"""

_WINDOW = """__global__ void blur(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int d = -2; d <= 2; ++d) {
        if (i + d >= 0 && i + d < n) sum += x[i + d];
    }
    y[i] = sum;
}"""

EXAMPLES: dict[str, Example] = {
    "inline": Example(
        """// Of one row.
__device__ float row_sum(const float* row, int columns) {
    float sum = 0.0f;
    for (int k = 0; k < columns; ++k) sum += row[k];
    return sum;
}

__global__ void row_sums(const float* a, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) y[row] = row_sum(a + row * columns, columns);
}""",
        _SUMMED,
    ),
    "speculate": Example(_WINDOW, {"x": _floats(256), "y": _floats(256), "n": 250}),
    "specialise": Example(_ROWS, _SUMMED),
    "cooperate": Example(_ROWS, _SUMMED),
    "split_work": Example(
        """
__global__ void kernel(const float* grad, float* bias, int batch, int time, int channels) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    double sum = 0;
    for (int b = 0; b < batch; b++)
        for (int t = 0; t < time; t++)
            sum += grad[(b * time + t) * channels + c];
    bias[c] += (float)sum;
}""",
        {"grad": _floats(32 * 24 * 64), "bias": _floats(64), "batch": 32, "time": 24,
         "channels": 64}, (1,),
    ),
    "shuffle_tree": Example(_TREE, {"a": _floats(256), "y": _floats(4), "n": 250}),
    "coarsen": Example(_SCALE, _SCALED),
    "geometry": Example(_SCALE, _SCALED),
    "fold": Example(
        _TREE.replace("[64]", "[256]"), {"a": _floats(1024), "y": _floats(4), "n": 1000},
        block=(256,),
    ),
    "strides": Example(_FILLED, {"x": _floats(2000), "y": _floats(2000), "m": 500}, block=(32,)),
    "block_order": Example(
        """__global__ void up(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (row < rows && column >= 1 && column < columns)
        y[row * columns + column] = x[row * columns + column - 1];
}""",
        {"x": _floats(90 * 150), "y": _floats(90 * 150), "rows": 90, "columns": 150},
        (90, 5), (32,),
    ),
    "tiles": Example(
        """__global__ void smooth(const float* x, float* y, int width, int height) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int row = i / width;
    if (row >= height) return;
    float above = row > 0 ? x[i - width] : 0.0f, below = row < height - 1 ? x[i + width] : 0.0f;
    y[i] = 0.5f * x[i] + 0.25f * (above + below);
}""",
        {"x": _floats(64 * 30), "y": _floats(64 * 30), "width": 64, "height": 30}, (8,), (256,),
    ),
    "keep_loads": Example(
        """__global__ void normalised(const float* x, float* y, int n) {
    const float* row = x + blockIdx.x * n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i] * row[i];
    for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        y[blockIdx.x * n + i] = row[i] * rsqrtf(sum / n);
    }
}""",
        {"x": _floats(400), "y": _floats(400), "n": 100}, (4,), (32,),
    ),
    "zero_factors": Example(
        """__global__ void blend(const int* below, const int* above, const int* w, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int share = w[i / 32];
    int here = below[i], there = above[i];
    y[i] = here + ((share * (there - here)) >> 8);
}""",
        {"below": _ints(256), "above": _ints(256), "w": _ints(8), "y": _ints(256), "n": 250},
        (4,), (64,),
    ),
    "bounds_checks": Example(
        """__global__ void sums(const float* x, float* y, int w, int h) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= h || column >= w) return;
    float sum = 0.0f;
    for (int k = 0; k < w; ++k) sum += x[row * w + k] * x[k * w + column];
    y[row * w + column] = sum;
}""",
        {"x": _floats(1024), "y": _floats(1024), "w": 32, "h": 32}, (2, 4), (16, 8),
    ),
    "grid_stride": Example(
        _SCALE, {"x": _floats(69000), "y": _floats(69000), "by": 0.5, "n": 68990}, (2157,), (32,)
    ),
    "accumulators": Example(_ROWS, _SUMMED),
    "unroll": Example(_ROWS, _SUMMED),
    "restrict_cache": Example(_SCALE, _SCALED),
    "atomics_private": Example(
        _COUNT, {"values": _ints(256), "bins": np.zeros(13, np.int32), "n": 250}
    ),
    "merge_blocks": Example(
        """__global__ void count(const int* values, int* bins, int n) {
    __shared__ int own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&own[values[i]], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}""",
        {"values": _ints(69000), "bins": np.zeros(16, np.int32), "n": 68990}, (2157,), (32,),
    ),
    "atomics_warp": Example(
        """__global__ void total(const int* values, int* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, values[i]);
}""",
        {"values": _ints(256), "sum": np.zeros(1, np.int32), "n": 250},
    ),
    "private_arrays": Example(
        """__global__ void modes(const int* a, int* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int count[16] = {};
    for (int k = 0; k < m; ++k) count[a[i * m + k]]++;
    int best = 0;
    for (int k = 1; k < 16; ++k)
        if (count[k] > count[best]) best = k;
    y[i] = best;
}""",
        {"a": _ints(250 * 20), "y": _ints(250), "n": 250, "m": 20},
    ),
    "strength_reduce": Example(
        """__global__ void ring(const float* x, float* y, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int column = i % w, row = i / w;
    if (row < h) y[i] = x[row * w + (column + 1) % w] + x[row * w + (column + w - 1) % w];
}""",
        {"x": _floats(250), "y": _floats(250), "w": 25, "h": 10},
    ),
    "sincos": Example(
        """__global__ void turn(const float* phase, float* re, float* im, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float angle = 0.5f * phase[i];
    re[i] = cosf(angle);
    im[i] = -sinf(angle);
}""",
        {"phase": _floats(250), "re": _floats(250), "im": _floats(250), "n": 250},
    ),
    "tabulate": Example(
        """__global__ void blur(const float* x, float* y, int n, float width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f, weights = 0.0f;
    for (int d = -4; d <= 4; ++d) {
        float weight = expf(-(d * d) / (2.0f * width * width));
        int at = min(max(i + d, 0), n - 1);
        sum += weight * x[at];
        weights += weight;
    }
    y[i] = sum / weights;
}""",
        {"x": _floats(250), "y": _floats(250), "n": 250, "width": 1.5},
    ),
    "precompute_table": Example(
        """__global__ void normalise(const float* x, const float* mean, const float* var, float* y,
                          int n, int channels, float eps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = i % channels;
    y[i] = (x[i] - mean[c]) * (1.0f / sqrtf(var[c] + eps));
}""",
        {"x": _floats(250), "mean": _floats(8), "var": _floats(8), "y": _floats(250), "n": 250,
         "channels": 8, "eps": 0.5},
    ),
    "lookup": Example(
        """__global__ void entropy(const int* counts, float* y, int n, int bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int b = 0; b < bins; ++b) {
        int c = counts[b * n + i];
        sum += (float)c * logf((float)c + 1.0f);
    }
    y[i] = sum;
}""",
        {"counts": np.arange(250 * 16, dtype=np.int32) % 700, "y": _floats(250), "n": 250,
         "bins": 16},
    ),
    "index32": Example(
        """__global__ void shift(const float* x, float* y, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[n - 1 - i] = x[i];
}""",
        {"x": _floats(250), "y": _floats(250), "n": 250},
    ),
    "scalar_replace": Example(
        """__global__ void add_rows(const float* a, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    for (int k = 0; k < columns; ++k) y[row] += a[k * rows + row];
}""",
        {"a": _floats(250 * 40), "y": _floats(250), "rows": 250, "columns": 40},
    ),
    "interior": Example(
        """__global__ void smooth(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int d = -2; d <= 2; ++d)
        if (i + d >= 0 && i + d < n) sum += x[i + d];
    y[i] = sum;
}""",
        {"x": _floats(250), "y": _floats(250), "n": 250},
    ),
    "jam": Example(
        """__global__ void products(const float* a, const float* x, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int r = 0; r < 8; ++r) {
        float sum = 0.0f;
        for (int k = 0; k < m; ++k) sum += a[r * m + k] * x[k * n + i];
        y[r * n + i] = sum;
    }
}""",
        {"a": _floats(8 * 20), "x": _floats(20 * 250), "y": _floats(8 * 250), "n": 250, "m": 20},
    ),
    "register_window": Example(
        """__global__ void second(const float* a, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 1; k < m - 1; ++k)
        y[k * n + i] = a[(k - 1) * n + i] - 2.0f * a[k * n + i] + a[(k + 1) * n + i];
}""",
        {"a": _floats(20 * 250), "y": _floats(20 * 250), "n": 250, "m": 20},
    ),
    "stage": Example(
        """__global__ void nearest(const float* p, const float* q, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best = 1e30f;
    for (int j = 0; j < m; ++j) best = fminf(best, fabsf(p[i] - q[j]));
    y[i] = best;
}""",
        {"p": _floats(250), "q": _floats(70), "y": _floats(250), "n": 250, "m": 70},
    ),
    "halo": Example(
        """__global__ void heat(const float* in, float* out, int w, int h, float c) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || x >= w - 1 || y < 1 || y >= h - 1) return;
    int i = y * w + x;
    out[i] = in[i] + c * (in[i - 1] + in[i + 1] + in[i - w] + in[i + w] - 4.0f * in[i]);
}""",
        {"in": _floats(50 * 13), "out": _floats(50 * 13), "w": 50, "h": 13, "c": 0.25},
        (2, 2), (32, 8),
    ),
    "prefetch": Example(
        """__global__ void nearest(const float* p, const float* q, float* y, int n, int m) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float best = 1e30f;
    for (int first = 0; first < m; first += 64) {
        int at = first + threadIdx.x;
        tile[threadIdx.x] = at < m ? q[at] : 1e30f;
        __syncthreads();
        for (int j = 0; j < 64; ++j) best = fminf(best, fabsf(p[i] - tile[j]));
        __syncthreads();
    }
    y[i] = best;
}""",
        {"p": _floats(256), "q": _floats(150), "y": _floats(256), "n": 256, "m": 150},
    ),
    "pad": Example(
        """__global__ void turn(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] =
        tile[threadIdx.x][threadIdx.y];
}""",
        {"x": _floats(64 * 64), "y": _floats(64 * 64), "n": 64}, (2, 2), (32, 32),
    ),
    "barriers": Example(
        """__global__ void twice(const float* x, float* y, int n) {
    __shared__ float own[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    own[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = 2.0f * own[threadIdx.x];
}""",
        {"x": _floats(256), "y": _floats(256), "n": 250},
    ),
    "share_uniform": Example(
        """__global__ void normalised(const float* a, float* y, int rows, int columns) {
    int row = blockIdx.x, c = threadIdx.x;
    if (c >= columns) return;
    float sum = 0.0f;
    for (int k = 0; k < columns; ++k) sum += a[row * columns + k];
    y[row * columns + c] = a[row * columns + c] / sum;
}""",
        {"a": _floats(250 * 40), "y": _floats(250 * 40), "rows": 250, "columns": 40},
    ),
    "register_block": Example(
        """__global__ void mix(const float* x, const float* w, float* y, int n, int c, int hw) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    int at = t % hw, m = t / hw % c, image = t / (hw * c);
    float sum = 0.0f;
    for (int k = 0; k < c; ++k) sum += w[m * c + k] * x[(image * c + k) * hw + at];
    y[t] = sum;
}""",
        {"x": _floats(2 * 8 * 15), "w": _floats(64), "y": _floats(2 * 8 * 15), "n": 2 * 8 * 15,
         "c": 8, "hw": 15},
    ),
    "strip": Example(_ROWS, _SUMMED),
    "loads_first": Example(_MEANS, _MEANT),
    "vectorise": Example(
        """__global__ void scale(const float* x, float* y, float by) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int k = 0; k < 4; ++k) y[i + k] = by * x[i + k];
}""",
        {"x": _floats(1024), "y": _floats(1024), "by": 0.5},
    ),
    "slp": Example(
        """__global__ void total(const float* x, float* sums, int n) {
    float sum = 0.f;
    int first = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < n; i += 8 * blockDim.x * gridDim.x)
        sum += x[i] + x[i + 1] + x[i + 2] + x[i + 3] + x[i + 4] + x[i + 5] + x[i + 6] + x[i + 7];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}""",
        {"x": _floats(8192), "sums": _floats(256), "n": 8192},
    ),
    "distribute": Example(
        """__global__ void outer(const float* a, const float* b, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int j = 0; j < m; ++j) y[j * n + i] = a[i] * b[j];
}""",
        {"a": _floats(250), "b": _floats(20), "y": _floats(5000), "n": 250, "m": 20},
    ),
    "share_serial": Example(
        """__global__ void block_sums(const float* a, float* y, int n) {
    __shared__ float part[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 64; ++k) sum += part[k];
        y[blockIdx.x] = sum;
    }
}""",
        {"a": _floats(256), "y": _floats(4), "n": 250},
    ),
}  # fmt: skip

_HEAD = """\
# Transformations

Edits that make some kernels faster and change no result. A search combines sequences of them by
their measured gain (`cudaops/transformations/search.py`). Each starts from the kernel with device
functions inlined, if `inline` applies and costs nothing; lambdas become functions
(`cudaops/transformations/lambdas.py`). If no [recipe](recipes.md) applies, this is what
`cudaops run` proposes without a model. Legality is proved from the kernel, made a `@requires`, or
the edit is refused. To add one: [adding-a-transformation.md](adding-a-transformation.md).

Generated by `python -m tests.transformations.examples`. A test executes every example against its
original.
"""

_LEFT_OUT = """
## What is left out

| what | why |
|---|---|
| atomics of a warp put together where their results are slots: `out[atomicAdd(&n, 1)] = x` | in another order the slots hold another array. The judge compares arrays place by place ([verification.md](verification.md)): a permutation is refused, and where the author's own order changes from launch to launch there is no reference to hold it against. Nothing in a kernel says that whoever reads the array takes any order. Atomics whose results nobody looks at are put together: `atomics_warp` |
| smaller blocks where threads leave ahead of a barrier: `if (i >= n) return; ... __syncthreads();` | a barrier is for all threads of a block. The hardware lets those that are left go on; a thread that does the work of one that left and of one that waits would do neither |
| loops in device functions that `inline` leaves: with a `return` in a loop, shared arrays of their own, methods, overloads, several instances of a template, `__noinline__` | what shares, stages, divides or jams a loop edits the kernel alone; `unroll` and `strength_reduce` bring copies of the functions into the draft. The functions' effects are followed everywhere |
| cooperative groups of fewer lanes than a warp, coalesced and grid groups, `cg::reduce` inside of an expression | a block's and a whole warp's methods become the intrinsics that they are (`inline`); the others act for lanes that only the group knows |
| trigonometry without its path for large arguments, `sinf(x)` where `x` is known to be small | what a floating value may be is not followed, and a guess that the captured inputs meet is no proof |
| tables of what an integer with few values reads, where no thread is known to read it | the table's kernel would read places that the author's never did, past the end of an array perhaps |
"""  # noqa: E501


def before(name: str, folder: Path) -> Draft:
    """The example's kernel as a draft."""
    one = EXAMPLES[name]
    text = one.source + "\nint main() { return 0; }\n"
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    kernel = program.kernels[0]
    workload = workload_of(folder, kernel.name, one.grid, one.block, one.arguments)
    return Draft.of(Subject(program, kernel, (workload,)))


def after(name: str, draft: Draft) -> Draft:
    """With the example's transformation."""
    one, setting = transformation(name), EXAMPLES[name].setting
    return one.apply(draft, one.settings(draft)[0] if setting is None else setting)


def section(name: str) -> str:
    """One transformation: what it is for, and its example."""
    one = transformation(name)
    with tempfile.TemporaryDirectory() as folder:
        draft = before(name, Path(folder))
        changed = after(name, draft)
    story = " ".join((type(one).__doc__ or "").split("\n\n")[0].split())
    settings = "; ".join(str(dict(x)) for x in one.settings(draft))
    return (
        f"\n## {name}\n\n{one.title.capitalize()}. {story}\n\n"
        f"Against: {', '.join(f'`{x}`' for x in sorted(one.relieves)) or 'nothing by itself'}. "
        f"Offered here: `{settings}`.\n\n"
        f"```cuda\n{EXAMPLES[name].source}\n```\n\n"
        f"```cuda\n{changed.rewrite().source.rstrip()}\n```\n"
    )


def page() -> str:
    """All of it."""
    return _HEAD + "".join(section(one.name) for one in TRANSFORMATIONS) + _LEFT_OUT


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
