"""Requests that the OpenAPI page shows. They run as they stand: a test sends every one."""

from __future__ import annotations

from typing import Any

from cudaops.service.records import JobKind

PROGRAM = """\
#include <cstdio>
#include <cuda_runtime.h>

__global__ void matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
    C[row * N + col] = sum;
}

int main() {
    const int N = 384;
    float *A, *B, *C;
    cudaMallocManaged(&A, N * N * sizeof(float));
    cudaMallocManaged(&B, N * N * sizeof(float));
    cudaMallocManaged(&C, N * N * sizeof(float));
    for (int i = 0; i < N * N; ++i) {
        A[i] = (i % 13) * 0.125f;
        B[i] = (i % 7) * 0.25f;
    }
    matmul<<<dim3(N / 16, N / 16), dim3(16, 16)>>>(A, B, C, N);
    cudaDeviceSynchronize();
    std::printf("%.3f %.3f\\n", C[0], C[N * N - 1]);
    return 0;
}
"""
"""A matrix product as one would first write it, small enough to be done in seconds."""

REWRITE = """\
// @launch four_rows grid=(ceil_div(N,32), ceil_div(N,32)) block=(32,8) args=(A, B, C, N)
__global__ void four_rows(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 32 + threadIdx.y;
    const int col = blockIdx.x * 32 + threadIdx.x;
    if (col >= N) return;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < N; ++k) {
        const float b = B[k * N + col];
        for (int i = 0; i < 4; ++i) {
            if (row + 8 * i < N) sum[i] += A[(row + 8 * i) * N + k] * b;
        }
    }
    for (int i = 0; i < 4; ++i) {
        if (row + 8 * i < N) C[(row + 8 * i) * N + col] = sum[i];
    }
}
"""
"""The same product, four rows a thread: device source with a launch directive."""

_PROGRAM = {"source": PROGRAM, "filename": "matmul.cu", "executor": "cpu"}


def _example(summary: str, **fields: Any) -> dict[str, Any]:
    return {"summary": summary, "value": {**_PROGRAM, **fields}}


EXAMPLES: dict[JobKind, dict[str, dict[str, Any]]] = {
    "compile": {
        "kernel": _example("The author's kernel"),
        "rewrite": _example("A rewrite of it", candidate=REWRITE),
    },
    "run": {"program": _example("The whole program", timeout_seconds=60)},
    "profile": {
        "kernel": _example("A named kernel, for a named device", kernel="matmul", device="A10")
    },
    "verify": {
        "rewrite": _example(
            "A rewrite that must be 1.1 times as fast", candidate=REWRITE, min_speedup=1.1
        )
    },
    "benchmark": {"rewrite": _example("Both, side by side", candidate=REWRITE)},
    "optimize": {
        "recipes": _example("One candidate, without a model", optimizer="recipes", max_iterations=1)
    },
}
"""By kind and name, as OpenAPI's `examples`."""
