"""A `ModelNew` for model.py as people write them."""

import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

__global__ void matmul_kernel(const float* A, const float* B, float* C, int N) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < N && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
    const int N = a.size(0);
    auto c = torch::empty({N, N}, a.options());
    dim3 block(16, 16);
    dim3 grid((N + 15) / 16, (N + 15) / 16);
    matmul_kernel<<<grid, block>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), N);
    return c;
}
"""

extension = load_inline(
    name="matmul_extension",
    cpp_sources="torch::Tensor matmul(torch::Tensor a, torch::Tensor b);",
    cuda_sources=source,
    functions=["matmul"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.matmul(a, b)
