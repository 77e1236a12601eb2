// Wrong: sums are kept in half precision.
// @launch matmul grid=(ceil_div(A_size0, 16), ceil_div(A_size0, 16)) block=(16, 16) args=(A, B, out, A_size0)

#include <cuda_fp16.h>

__global__ void matmul(const float* A, const float* B, float* C, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= n) return;
    __half sum = __float2half(0.0f);
    for (int k = 0; k < n; ++k) {
        sum = __hadd(sum, __float2half(A[row * n + k] * B[k * n + col]));
    }
    C[row * n + col] = __half2float(sum);
}
