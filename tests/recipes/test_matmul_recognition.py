"""Which kernels are read as matrix products, and which are left alone."""

# ruff: noqa: E501 - a table of kernels, one a line

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.domain.program import Program
from cudaops.domain.workload import Workload
from cudaops.program.hygiene import check_source
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.matmul import MatmulRecipe, product_of
from cudaops.recipes.matmul_form import MatmulForm
from cudaops.recipes.reading.kernel import read_kernel

MakeProgram = Callable[..., Program]
MakeLaunch = Callable[..., Workload]

_ROW_COL = """
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;"""


def _kernel(body: str, head: str = "const float* A, const float* B, float* C, int N") -> str:
    return f"__global__ void mm({head}) {{{body}\n}}"


def _plain(
    sum_: str = "for (int k = 0; k < N; ++k) acc += A[row * N + k] * B[k * N + col];",
    store: str = "C[row * N + col] = acc;",
    guard: str = "row < N && col < N",
    start: str = "float acc = 0.0f;",
    head: str = "const float* A, const float* B, float* C, int N",
) -> str:
    return _kernel(f"{_ROW_COL}\n if ({guard}) {{ {start} {sum_} {store} }}", head)


_MNK = "const float* A, const float* B, float* C, int M, int N, int K"
_MNK_SUM = "for (int k = 0; k < K; k++) acc += {0} * {1};"


def _mnk(left: str, right: str, store: str = "C[row * N + col] = acc;", head: str = _MNK) -> str:
    return _plain(_MNK_SUM.format(left, right), store, "row < M && col < N", head=head)


TILED = """
#define T 16
__global__ void mm(const float* A, const float* B, float* C, int N) {
    __shared__ float As[T][T];
    __shared__ float Bs[T][T + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
    float acc = 0.0f;
    for (int t = 0; t < (N + T - 1) / T; ++t) {
        int a = t * T + tx, b = t * T + ty;
        As[ty][tx] = (row < N && a < N) ? A[row * N + a] : 0.0f;
        if (b < N && col < N) Bs[ty][tx] = B[b * N + col]; else Bs[ty][tx] = 0.0f;
        __syncthreads();
        for (int k = 0; k < T; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < N && col < N) C[row * N + col] = acc;
}"""

SAMPLE = """
template <int SIDE> __global__ void mm(float* C, float* A, float* B, int wA, int wB) {
    int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    int first = wA * SIDE * by, last = first + wA - 1, down = SIDE * wB, across = SIDE;
    float sum = 0;
    for (int a = first, b = SIDE * bx; a <= last; a += across, b += down) {
        __shared__ float As[SIDE][SIDE];
        __shared__ float Bs[SIDE][SIDE];
        As[ty][tx] = A[a + wA * ty + tx];
        Bs[ty][tx] = B[b + wB * ty + tx];
        __syncthreads();
        for (int k = 0; k < SIDE; ++k) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    C[wB * SIDE * by + SIDE * bx + wB * ty + tx] = sum;
}"""
"""Two variables in a loop's header, tiles declared in the loop: as NVIDIA's sample has it."""

FLAT = """
#define T 8
__global__ void mm(const float* A, const float* B, float* C, int N) {
    __shared__ float As[T * T], Bs[T * T];
    const unsigned col = threadIdx.x % T, row = threadIdx.x / T;
    A += blockIdx.x * T * N;
    B += blockIdx.y * T;
    C += blockIdx.x * T * N + blockIdx.y * T;
    float sum = 0;
    for (int at = 0; at < N; at += T) {
        As[row * T + col] = A[row * N + col];
        Bs[row * T + col] = B[row * N + col];
        __syncthreads();
        A += T;
        B += T * N;
        for (int k = 0; k < T; ++k) sum += As[row * T + k] * Bs[k * T + col];
        __syncthreads();
    }
    C[row * N + col] = sum;
}"""
"""A block that is a row of threads, tiles that are rows of elements, pointers that move."""

SUBMATRICES = """
#define T 16
typedef struct { int width; int height; int stride; float* elements; } Matrix;
__device__ float get(const Matrix A, int row, int col) { return A.elements[row * A.stride + col]; }
__device__ void set(Matrix A, int row, int col, float value) {
    A.elements[row * A.stride + col] = value;
}
__device__ Matrix part(Matrix A, int row, int col) {
    Matrix sub;
    sub.width = T;
    sub.height = T;
    sub.stride = A.stride;
    sub.elements = &A.elements[A.stride * T * row + T * col];
    return sub;
}
__global__ void mm(Matrix A, Matrix B, Matrix C) {
    int by = blockIdx.y, bx = blockIdx.x, row = threadIdx.y, col = threadIdx.x;
    Matrix Csub = part(C, by, bx);
    float sum = 0;
    for (int m = 0; m < (A.width / T); ++m) {
        Matrix Asub = part(A, by, m);
        Matrix Bsub = part(B, m, bx);
        __shared__ float As[T][T];
        __shared__ float Bs[T][T];
        As[row][col] = get(Asub, row, col);
        Bs[row][col] = get(Bsub, row, col);
        __syncthreads();
        for (int e = 0; e < T; ++e) sum += As[row][e] * Bs[e][col];
        __syncthreads();
    }
    set(Csub, row, col, sum);
}"""
"""Tiles of the Programming Guide: structures that functions put together."""

ACCEPTED: dict[str, tuple[str, str]] = {
    "plain": ("NN", _plain()),
    "post-increment and commuted factors": (
        "NN", _plain("for (int k = 0; k < N; k++) acc += B[k * N + col] * A[row * N + k];")),
    "plus written out": (
        "NN", _plain("for (int k = 0; k <= N - 1; k += 1) acc = acc + A[row*N+k] * B[k*N+col];")),
    "product first": (
        "NN", _plain("for (int k = 0; N > k; ++k) { acc = A[k + row*N] * B[col + N*k] + acc; }")),
    "fmaf": ("NN", _plain(
        "for (int k = 0; k < N; ++k) acc = fmaf(A[row * N + k], B[k * N + col], acc);")),
    "loads in locals": ("NN", _plain(
        "for (int k = 0; k < N; ++k) { const float a = A[row*N+k]; float b = B[k*N+col]; acc += a*b; }")),
    "__ldg and pragma": ("NN", _plain(
        "\n#pragma unroll 4\nfor (int k = 0; k < N; ++k) acc += __ldg(&A[row*N+k]) * __ldg(B + k*N + col);")),
    "early return": ("NN", _kernel(
        _ROW_COL + "if (row >= N || col >= N) return; float acc = 0; "
        "for (int k = 0; k < N; ++k) acc += A[row*N+k]*B[k*N+col]; C[row*N+col] = acc;")),
    "return in braces, guard negated": ("NN", _kernel(
        _ROW_COL + "if (!(row < N && col < N)) { return; } float acc = 0.f; "
        "for (int k = 0; k < N; ++k) acc += A[row*N+k]*B[k*N+col]; C[row*N+col] = acc;")),
    "guard around the store alone": ("NN", _kernel(
        _ROW_COL + "float acc = 0; for (int k = 0; k < N; ++k) acc += A[row*N+k]*B[k*N+col];"
        "if (row < N) if (col < N) C[row*N+col] = acc;")),
    "size_t casts": ("NN", _plain(
        "for (size_t k = 0; k < (size_t)N; ++k) acc += A[(size_t)row*N+k] * B[static_cast<size_t>(k)*N+col];",
        "C[(size_t)row * N + col] = acc;")),
    "row pointers": ("NN", _plain(
        "const float* a = A + row * N; const float* b = &B[col]; "
        "for (int k = 0; k < N; ++k) acc += a[k] * b[k * N];")),
    "dereferences": ("NN", _plain(
        "for (int k = 0; k < N; ++k) acc += *(A + row*N + k) * *(B + k*N + col);")),
    "x is the row": ("NN", _kernel(
        "int i = threadIdx.x + blockIdx.x * blockDim.x; int j = threadIdx.y + blockDim.y * blockIdx.y;"
        "if (i < N && j < N) { float s = 0; for (int p = 0; p < N; p++) s += A[i*N+p]*B[p*N+j]; C[i*N+j] = s; }")),
    "M, N, K": ("NN", _mnk("A[row * K + k]", "B[k * N + col]")),
    "B transposed": ("NT", _mnk("A[row * K + k]", "B[col * K + k]")),
    "A transposed": ("TN", _mnk("A[k * M + row]", "B[k * N + col]")),
    "both transposed": ("TT", _mnk("A[k * M + row]", "B[col * K + k]")),
    "column-major": ("NN", _mnk("A[k * M + row]", "B[col * K + k]", "C[col * M + row] = acc;")),
    "leading dimensions": ("NN", _mnk(
        "A[row * lda + k]", "B[k * ldb + col]", "C[row * ldc + col] = acc;",
        _MNK + ", int lda, int ldb, int ldc")),
    "alpha and beta": ("NN", _mnk(
        "A[row * K + k]", "B[k * N + col]", "C[row*N+col] = alpha * acc + beta * C[row*N+col];",
        _MNK + ", float alpha, float beta")),
    "beta tested": ("NN", _mnk(
        "A[row * K + k]", "B[k * N + col]",
        "if (beta == 0.0f) C[row*N+col] = alpha * acc; else C[row*N+col] = alpha*acc + beta*C[row*N+col];",
        _MNK + ", float alpha, float beta")),
    "accumulating store": ("NN", _mnk("A[row*K+k]", "B[k*N+col]", "C[row*N+col] += acc;")),
    "bias and relu": ("NN", _mnk(
        "A[row * K + k]", "B[k * N + col]", "C[row*N+col] = fmaxf(acc + bias[col], 0.0f);",
        _MNK + ", const float* __restrict__ bias")),
    "double accumulator": ("NN", _plain(start="double acc = 0.0;", store="C[row*N+col] = (float)acc;")),
    "doubles": ("NN", _plain(
        start="double acc = 0;", head="const double* A, const double* B, double* C, int N")),
    "integers": ("NN", _plain(start="int acc = 0;", head="const int* A, const int* B, int* C, int N")),
    "A times its transpose": ("NT", _mnk("A[row * K + k]", "A[col * K + k]")),
    "size by macro": ("NN", "#define SIZE 256\n" + _plain(
        "for (int k = 0; k < SIZE; ++k) acc += A[row*SIZE+k] * B[k*SIZE+col];",
        "C[row*SIZE+col] = acc;", "row < SIZE && col < SIZE", head="const float* A, const float* B, float* C")),
    "index macro": ("NN", "#define AT(p, r, c, ld) ((p)[(r) * (ld) + (c)])\n" + _plain(
        "for (int k = 0; k < N; ++k) acc += AT(A, row, k, N) * AT(B, k, col, N);", "AT(C, row, col, N) = acc;")),
    "constexpr block": ("NN", "constexpr int TB = 16;\n" + _kernel(
        "int row = blockIdx.y * TB + threadIdx.y, col = blockIdx.x * TB + threadIdx.x;"
        "if (row < N && col < N) { float s = 0; for (int k = 0; k < N; ++k) s += A[row*N+k]*B[k*N+col];"
        "C[row*N+col] = s; }")),
    "one-dimensional block": ("NN", "#define TB 16\n" + _kernel(
        "int row = blockIdx.y * TB + threadIdx.x / TB, col = blockIdx.x * TB + threadIdx.x % TB;"
        "if (row < N && col < N) { float s = 0; for (int k = 0; k < N; ++k) s += A[row*N+k]*B[k*N+col];"
        "C[row*N+col] = s; }")),
    "shifts and masks": ("NN", _kernel(
        "int row = (blockIdx.y << 4) + (threadIdx.x >> 4), col = blockIdx.x * 16 + (threadIdx.x & 15);"
        "if (row < N && col < N) { float s = 0; for (int k = 0; k < N; ++k) s += A[row*N+k]*B[k*N+col];"
        "C[row*N+col] = s; }")),
    "flat index": ("NN", _kernel(
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= M * N) return;"
        "int r = i / N, c = i % N; float s = 0;"
        "for (int k = 0; k < K; ++k) s += A[r*K+k]*B[k*N+c]; C[i] = s;", _MNK)),
    "a row a block": ("NN", _kernel(
        "int r = blockIdx.x, c = threadIdx.x; float s = 0;"
        "for (int k = 0; k < K; ++k) s += A[r*K+k]*B[k*N+c]; C[r*N+c] = s;", _MNK)),
    "no guard": ("NN", _kernel(
        _ROW_COL + "float s = 0; for (int k = 0; k < N; ++k) s += A[row*N+k]*B[k*N+col]; C[row*N+col] = s;")),
    "batched": ("NN", _kernel(
        _ROW_COL + "int b = blockIdx.z; if (row < N && col < N) { float s = 0; const float* a = A + b*N*N;"
        "for (int k = 0; k < N; ++k) s += a[row*N+k]*B[b*N*N+k*N+col]; C[b*N*N+row*N+col] = s; }")),
    "device function for the index": (
        "NN", "__device__ __forceinline__ int at(int r, int c, int ld) { return r * ld + c; }\n" + _plain(
            "for (int k = 0; k < N; ++k) acc += A[at(row, k, N)] * B[at(k, col, N)];", "C[at(row, col, N)] = acc;")),
    "structures of the Programming Guide": (
        "NN", "typedef struct { int width; int height; float* elements; } Matrix;\n" + _kernel(
            _ROW_COL + "if (row >= A.height || col >= B.width) return; float s = 0;"
            "for (int e = 0; e < A.width; ++e)"
            " s += A.elements[row * A.width + e] * B.elements[e * B.width + col];"
            "C.elements[row * C.width + col] = s;", "Matrix A, Matrix B, Matrix C")),
    "function that reads an element": (
        "NN", "struct M { int w; float* p; };\n"
        "__device__ float at(const M m, int r, int c) { return m.p[r * m.w + c]; }\n"
        "__device__ float of(const float* p, int i) { return p[i]; }\n" + _kernel(
            _ROW_COL + "if (row < N && col < N) { float s = 0;"
            "for (int k = 0; k < N; ++k) s += at(A, row, k) * of(B, k * N + col); C[row*N+col] = s; }",
            "M A, const float* B, float* C, int N")),
    "added up in memory": ("NN", _plain(
        "C[row*N+col] = 0; for (int k = 0; k < N; ++k) C[row*N+col] += A[row*N+k] * B[k*N+col];", "", start="")),
    "added to what stands in memory": ("NN", _plain(
        "for (int k = 0; k < N; ++k) C[row*N+col] += A[row*N+k] * B[k*N+col];", "", start="")),
    "while": ("NN", _plain(
        "int k = 0; while (k < N) { acc += A[row*N+k] * B[k*N+col]; k++; }")),
    "a variable from before": ("NN", _plain(
        "int k; for (k = 0; k < N; k = k + 1) acc += A[row*N+k] * B[k*N+col];")),
    "pointers that move": ("NN", _plain(
        "const float *a = A + row * N, *b = B + col;"
        "for (int k = 0; k < N; ++k) { acc += *a * *b; ++a; b += N; }")),
    "an index that moves": ("NN", _plain(
        "int at = col; for (int k = 0; k < N; ++k) { acc += A[row*N+k] * B[at]; at += N; }")),
    "a structure that is changed": (
        "NN", "struct M { int w; float* p; };\n" + _kernel(
            _ROW_COL + "A.w = N; if (row < N && col < N) { float s = 0;"
            "for (int k = 0; k < N; ++k) s += A.p[row*A.w+k] * B[k*N+col]; C[row*N+col] = s; }",
            "M A, const float* B, float* C, int N")),
    "tiled": ("NN", TILED),
    "tiled, rows of threads and elements": ("NN", FLAT),
    "tiled, padded rows of elements": (
        "NN", FLAT.replace("As[T * T], Bs[T * T]", "As[T * T], Bs[T * (T + 1)]")
        .replace("Bs[row * T", "Bs[row * (T + 1)").replace("Bs[k * T", "Bs[k * (T + 1)")),
    "tiled, the sum under a bound": (
        "NN", TILED.replace("for (int k = 0; k < T", "if (row < N && col < N) for (int k = 0; k < T")),
    "an integer sum from before the bound": ("NN", _kernel(
        _ROW_COL + "int s = 0; if (col < N && row < N) { for (int k = 0; k < N; k++)"
        " s += A[row*N+k]*B[k*N+col]; C[row*N+col] = s; }", "int* A, int* B, int* C, int N")),
    "a row a thread": ("NN", _kernel(
        "int row = blockIdx.x * blockDim.x + threadIdx.x; if (row < M) for (int j = 0; j < N; ++j) {"
        "float s = 0; for (int k = 0; k < K; ++k) s += A[row*K+k]*B[k*N+j]; C[row*N+j] = s; }", _MNK)),
    "a column a thread, in memory": ("NN", _kernel(
        "int j = blockIdx.x * blockDim.x + threadIdx.x; if (j >= N) return;"
        "for (int i = 0; i < M; i++) { C[i*N+j] = 0; for (int k = 0; k < K; k++)"
        " C[i*N+j] += A[i*K+k]*B[k*N+j]; }", _MNK)),
    "tiled, structures of a part": ("NN", SUBMATRICES),
    "tiled, rounds of N - 1": ("NN", TILED.replace("(N + T - 1) / T", "(N - 1) / T + 1")),
    "tiled, whole tiles only": ("NN", TILED
        .replace("(row < N && a < N) ? A[row * N + a] : 0.0f", "A[row * N + a]")
        .replace("if (b < N && col < N) Bs[ty][tx] = B[b * N + col]; else Bs[ty][tx] = 0.0f;",
                 "Bs[ty][tx] = B[b * N + col];").replace("(N + T - 1) / T", "N / T")),
}  # fmt: skip

REFUSED: dict[str, str] = {
    "minus": _plain("for (int k = 0; k < N; ++k) acc -= A[row*N+k] * B[k*N+col];"),
    "sum of sums": _plain("for (int k = 0; k < N; ++k) acc += A[row*N+k] + B[k*N+col];"),
    "quotient": _plain("for (int k = 0; k < N; ++k) acc += A[row*N+k] / B[k*N+col];"),
    "maximum": _plain("for (int k = 0; k < N; ++k) acc = fmaxf(acc, A[row*N+k] * B[k*N+col]);"),
    "square of the difference": _plain(
        "for (int k = 0; k < N; ++k) { float d = A[row*N+k] - B[k*N+col]; acc += d * d; }"),
    "k from 1": _plain("for (int k = 1; k < N; ++k) acc += A[row*N+k] * B[k*N+col];")
        .replace("int k = 1; k < N", "int k = 1; k < row"),
    "k up to the row": _plain("for (int k = 0; k <= row; ++k) acc += A[row*N+k] * B[k*N+col];"),
    "k downwards": _plain("for (int k = N - 1; k >= 0; --k) acc += A[row*N+k] * B[k*N+col];"),
    "break": _plain("for (int k = 0; k < N; ++k) { if (k > 7) break; acc += A[row*N+k] * B[k*N+col]; }"),
    "conditional term": _plain(
        "for (int k = 0; k < N; ++k) if (A[row*N+k] > 0) acc += A[row*N+k] * B[k*N+col];"),
    "starts at one": _plain(start="float acc = 1.0f;"),
    "starts at memory": _plain(start="float acc = C[row * N + col];", store="C[row*N+col] = acc * 2;")
        .replace("float acc = C", "float acc = B"),
    "two stores": _plain(store="C[row*N+col] = acc; C[col*N+row] = acc;"),
    "a second output": _plain(
        store="C[row*N+col] = acc; D[row] = acc;", head="const float* A, const float* B, float* C, float* D, int N"),
    "atomic": _plain(store="atomicAdd(&C[row*N+col], acc);"),
    "printf": _plain(store='C[row*N+col] = acc; printf("%f", acc);'),
    "store in the loop": _plain(
        "for (int k = 0; k < N; ++k) { acc += A[row*N+k]*B[k*N+col]; C[row*N+col] = acc; }", ""),
    "added up in memory, sometimes": _plain(
        "C[row*N+col] = 0; for (int k = 0; k < N; ++k) if (k % 3) C[row*N+col] += A[row*N+k] * B[k*N+col];", ""),
    "added up in memory, and once more": _plain(
        "C[row*N+col] = 0; for (int k = 0; k < N; ++k) { C[row*N+col] += A[row*N+k] * B[k*N+col];"
        " if (k == row) C[row*N+col] = 1; }", ""),
    "added up in memory that is read": _plain(
        "C[row*N+col] = 0; for (int k = 0; k < N; ++k) C[row*N+col] += A[row*N+k] * C[k*N+col];", ""),
    "added up elsewhere each time": _plain(
        "for (int k = 0; k < N; ++k) C[row*N+k] += A[row*N+k] * B[k*N+col];", ""),
    "a pointer that moves sometimes": _plain(
        "const float* a = A + row * N; for (int k = 0; k < N; ++k) { acc += *a * B[k*N+col]; if (k % 2) ++a; }"),
    "a pointer that moves twice": _plain(
        "const float* a = A + row * N; for (int k = 0; k < N; ++k) { acc += *a++ * B[k*N+col]; ++a; }"),
    "a pointer that moves ever further": _plain(
        "const float* a = A + row * N; for (int k = 0; k < N; ++k) { acc += *a * B[k*N+col]; a += k; }"),
    "a pointer read after the loop": _plain(
        "const float* a = A + row * N; for (int k = 0; k < N; ++k) { acc += *a * B[k*N+col]; ++a; }",
        "C[row*N+col] = acc + *a;"),
    "the loop's variable afterwards": _plain(
        "int k = 0; for (; k < N; ++k) acc += A[row*N+k] * B[k*N+col];", "C[row*N+col] = acc * k;"),
    "a while that goes on": _plain(
        "int k = 0; while (k < N) { if (A[k] > 0) continue; acc += A[row*N+k] * B[k*N+col]; k++; }"),
    "a structure that is changed sometimes": "struct M { int w; float* p; };\n" + _kernel(
        _ROW_COL + "if (N > 9) A.w = 2; if (row < N && col < N) { float s = 0;"
        "for (int k = 0; k < N; ++k) s += A.p[row*A.w+k] * B[k*N+col]; C[row*N+col] = s; }",
        "M A, const float* B, float* C, int N"),
    "a function that calls itself": (
        "__device__ float f(float x) { return f(x); }\n" + _plain(
            "for (int k = 0; k < N; ++k) acc += f(A[row*N+k]) * B[k*N+col];")),
    "output is an input": _plain(store="A[row*N+col] = acc;", head="float* A, const float* B, float* C, int N"),
    "neighbour of the output": _plain(store="C[row*N+col] = acc + C[row*N+col+1];"),
    "guard on the data": _plain(guard="row < N && col < N && A[row] > 0"),
    "guard on the sum of both": _plain(guard="row + col < N"),
    "nothing at all": _plain(guard="row < 0 && col < N"),
    "lower triangle": _plain(guard="row < N && col <= row"),
    "every second row": _plain().replace("int row = blockIdx", "int row = 2 * blockIdx"),
    "diagonal stride": _plain("for (int k = 0; k < N; ++k) acc += A[row*N+k] * B[k*N+k];"),
    "neither direction adjacent": _plain("for (int k = 0; k < N; ++k) acc += A[2*row*N+2*k] * B[k*N+col];"),
    "indirect": _plain("for (int k = 0; k < N; ++k) acc += A[row*N+idx[k]] * B[k*N+col];",
        head="const float* A, const float* B, float* C, const int* idx, int N"),
    "three factors": _plain("for (int k = 0; k < N; ++k) acc += A[row*N+k] * B[k*N+col] * A[k];"),
    "halves": _plain(head="const half* A, const half* B, half* C, int N"),
    "float sum of doubles": _plain(head="const double* A, const double* B, double* C, int N"),
    "epilogue that looks at the thread": _plain(store="C[row*N+col] = acc * (threadIdx.x == 0.0f);"),
    "epilogue that looks at the block": _plain(store="C[row*N+col] = acc * blockDim.x;"),
    "same element for every batch": _kernel(_ROW_COL + "if (row < N && col < N) { float s = 0;"
        "for (int k = 0; k < N; ++k) s += A[blockIdx.z*N*N+row*N+k]*B[k*N+col]; C[row*N+col] = s; }"),
    "no loop": _plain("acc = A[row*N] * B[col];"),
    "matrix times vector": _kernel(
        "int row = blockIdx.x * blockDim.x + threadIdx.x; if (row < N) { float acc = 0;"
        "for (int k = 0; k < N; ++k) acc += A[row*N+k] * B[k]; C[row] = acc; }"),
    "unknown call": _plain("for (int k = 0; k < N; ++k) acc += mystery(A[row*N+k], B[k*N+col]);"),
    "two sums": _plain(
        "float b = 0; for (int k = 0; k < N; ++k) { acc += A[row*N+k]*B[k*N+col]; b += A[row*N+k]; }",
        "C[row*N+col] = acc + b;"),
    "split over threads": _kernel(
        _ROW_COL + "if (row < N && col < N) { float s = 0; for (int k = threadIdx.z; k < N; ++k)"
        " s += A[row*N+k]*B[k*N+col]; C[row*N+col] = s; }"),
    "tiled without its second barrier": TILED[:TILED.rindex("__syncthreads();")]
        + TILED[TILED.rindex("__syncthreads();") + 16:],
    "tiled, copy after the sum": TILED.replace(
        "for (int k = 0; k < T; ++k) acc += As[ty][k] * Bs[k][tx];", "").replace(
        "int a = t * T + tx", "for (int k = 0; k < T; ++k) acc += As[ty][k] * Bs[k][tx]; int a = t * T + tx"),
    "tiled, the sum under a bound of k": TILED.replace(
        "for (int k = 0; k < T", "if (t < N - 1) for (int k = 0; k < T"),
    "a row a thread, each on top of the last": _kernel(
        "int row = blockIdx.x * blockDim.x + threadIdx.x; if (row < M) for (int j = 0; j < N; ++j) {"
        "float s = 0; for (int k = 0; k < K; ++k) s += A[row*K+k]*B[k*N+j]; C[row*N] = s; }", _MNK),
    "a row a thread, sums that go on": _kernel(
        "int row = blockIdx.x * blockDim.x + threadIdx.x; float s = 0; if (row < M) for (int j = 0; j < N; ++j) {"
        "for (int k = 0; k < K; ++k) s += A[row*K+k]*B[k*N+j]; C[row*N+j] = s; }", _MNK),
    "an index from a branch": _kernel(
        _ROW_COL + "int at = col; if (A[0] > 0) at = row; float s = 0; if (row < N && col < N) {"
        "for (int k = 0; k < N; ++k) s += A[row*N+k]*B[k*N+at]; C[row*N+col] = s; }"),
    "tiled, rows of elements that overlap": FLAT.replace("As[row * T + col]", "As[row * (T - 1) + col]"),
    "tiled, rows of elements read elsewhere": FLAT.replace("Bs[k * T + col]", "Bs[k * T + col + 1]"),
    "tiled, rows of elements of another length": FLAT.replace("As[T * T]", "As[T * (T + 2)]"),
    "tiled, a part that is not put together": SUBMATRICES.replace("sub.stride = A.stride;", ""),
    "tiled, padded with one": TILED.replace(": 0.0f", ": 1.0f"),
    "tiled, wrong element": TILED.replace("As[ty][k] *", "As[k][ty] *"),
    "tiled, wrong bound": TILED.replace("row < N && a < N", "col < N && a < N"),
    "tiled, other rounds": TILED.replace("t * T + tx", "t * 8 + tx"),
}  # fmt: skip


def _form(program: Program, *launches: Workload) -> MatmulForm:
    return product_of(read_kernel(program, program.kernel("mm"), launches))


def _requirements(program: Program) -> tuple[str, ...]:
    return tuple(map(str, _form(program).requirements))


@pytest.mark.parametrize("name", ACCEPTED)
def test_recognises(name: str, program_of: MakeProgram) -> None:
    layout, text = ACCEPTED[name]
    program = program_of(text)
    assert _form(program).layout == layout
    (rewrite,) = MatmulRecipe().propose(program, program.kernel("mm"), (), None)
    assert rewrite.plan.launches[0].kernel == "mm_tiled"
    assert check_source(rewrite.source) == ()


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str, program_of: MakeProgram) -> None:
    program = program_of(REFUSED[name])
    assert MatmulRecipe().propose(program, program.kernel("mm"), (), None) == ()


def test_sum_from_one_is_not_taken_for_the_whole(program_of: MakeProgram) -> None:
    """k = 1 .. N-1 is a product of shorter matrices at an offset, not the one from 0."""
    text = _plain("for (int k = 1; k < N; ++k) acc += A[row*N+k] * B[k*N+col];")
    form = _form(program_of(text))
    assert (form.depth.text(), form.left.offset.text()) == ("N - 1", "1")


def test_requires_full_reach(program_of: MakeProgram) -> None:
    assert set(_requirements(program_of(_plain()))) == {
        "blockDim.x * gridDim.x >= N",
        "blockDim.y * gridDim.y >= N",
    }


def test_an_output_that_is_read_must_not_be_worked_on_twice(program_of: MakeProgram) -> None:
    _, text = ACCEPTED["accumulating store"]
    assert "gridDim.z * blockDim.z == 1" in _requirements(program_of(text))


def test_requires_that_no_element_is_written_twice(program_of: MakeProgram) -> None:
    strided = _requirements(program_of(ACCEPTED["leading dimensions"][1]))
    assert "ldc >= N" in strided
    assert "N >= blockDim.x * gridDim.x" in _requirements(program_of(ACCEPTED["no guard"][1]))


def test_flat_index_needs_all_elements(program_of: MakeProgram) -> None:
    _, text = ACCEPTED["flat index"]
    form = _form(program_of(text))
    assert tuple(map(str, form.requirements)) == ("blockDim.x * gridDim.x >= M * N",)
    assert (form.rows.size.text(), form.columns.size.text()) == ("M", "N")


def test_no_guard_takes_the_size_from_the_launch(program_of: MakeProgram) -> None:
    _, text = ACCEPTED["no guard"]
    program = program_of(text)
    (rewrite,) = MatmulRecipe().propose(program, program.kernel("mm"), (), None)
    step = rewrite.plan.launches[0]
    assert step.args[-2:] == ("blockDim.y * gridDim.y", "blockDim.x * gridDim.x")


def test_template_parameters_come_out_concrete(
    program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    """The shape of the issue's other program: 1-D block, template, header, other names."""
    header = """
template <typename Real, int EDGE>
__global__ void contract(const Real* __restrict__ lhs, const Real* __restrict__ rhs,
                         Real* __restrict__ dst, unsigned m, unsigned n, unsigned p) {
    const unsigned i = blockIdx.y * EDGE + threadIdx.x / EDGE;
    const unsigned j = blockIdx.x * EDGE + threadIdx.x % EDGE;
    if (i >= m || j >= n) return;
    Real dot = Real(0);
    for (unsigned q = 0; q < p; ++q) dot += lhs[i * p + q] * rhs[q * n + j];
    dst[i * n + j] = dot;
}"""
    program = program_of('#include "contract.cuh"\n', contract=header)
    launch = launch_of("contract<float, 16>", "lhs rhs dst", block=(256, 1, 1), m=9, n=9, p=9)
    kernel = program.kernel("contract")
    (rewrite,) = MatmulRecipe().propose(program, kernel, (launch,), None)
    assert "const float* __restrict__ lhs" in rewrite.source
    assert "blockDim.x % 16 == 0" in rewrite.plan.requires
    assert "template" not in rewrite.source


def test_a_sample_of_the_toolkit(program_of: MakeProgram, launch_of: MakeLaunch) -> None:
    program = program_of(SAMPLE)
    (rewrite,) = MatmulRecipe().propose(program, program.kernel("mm"), (launch_of("mm<16>"),), None)
    assert "wA % 16 == 0" in rewrite.plan.requires
    other = program_of(SAMPLE.replace("b += down", "b += across"))
    assert MatmulRecipe().propose(other, other.kernel("mm"), (launch_of("mm<16>"),), None) == ()


def test_sizes_that_are_taken_to_be_positive_are_asked_for(program_of: MakeProgram) -> None:
    assert "N - 1 >= 0" in _requirements(program_of(ACCEPTED["tiled, rounds of N - 1"][1]))


def test_template_arguments_that_differ_are_refused(
    program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    text = "template <int E> " + _plain("for (int k = 0; k < E; ++k) acc += A[row*N+k]*B[k*N+col];")
    program = program_of(text)
    launches = (launch_of("mm<16>"), launch_of("mm<32>"))
    assert MatmulRecipe().propose(program, program.kernel("mm"), launches, None) == ()
    assert _form(program, launch_of("mm<16>")).depth.text() == "16"


def test_names_of_the_program_are_kept_apart(program_of: MakeProgram) -> None:
    text = "#define THREADS 77\n__device__ void mm_tiled() {}\n" + _plain().replace("N", "rows")
    program = program_of(text)
    (rewrite,) = MatmulRecipe().propose(program, program.kernel("mm"), (), None)
    assert rewrite.plan.launches[0].kernel == "mm_tiled2"
    assert "own_THREADS" in rewrite.source
    assert "own_rows = rows" in rewrite.source


def test_an_output_in_the_memory_of_a_factor_is_refused(
    program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    program = program_of(_plain())
    apart = launch_of("mm", N=9)
    same = [a.model_copy(update={"allocation": 0}) for a in apart.arguments[:3]]
    together = apart.model_copy(update={"arguments": (*same, *apart.arguments[3:])})
    assert MatmulRecipe().propose(program, program.kernel("mm"), (apart,), None)
    assert MatmulRecipe().propose(program, program.kernel("mm"), (apart, together), None) == ()


@pytest.mark.parametrize("name", ["x < N && A[x] > 0", "x * x < N"])
def test_not_understood_is_an_exception_inside(name: str, program_of: MakeProgram) -> None:
    program = program_of(_plain(guard=name.replace("x", "row")))
    with pytest.raises(NotUnderstood):
        _form(program)
