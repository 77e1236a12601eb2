// naive_matmul with CuTe's tensors and CUTLASS's vectors: 64x64 tiles in shared memory, 4x4 a thread.
#include <cute/tensor.hpp>
#include <cutlass/array.h>
// @requires N % 64 == 0
// @launch cute_matmul grid=(N / 64, N / 64) block=(256) args=(A, B, C, N)
__global__ void __launch_bounds__(256) cute_matmul(const float* A, const float* B, float* C, int N) {
    using namespace cute;
    __shared__ alignas(16) float left[16 * 64];
    __shared__ alignas(16) float right[16 * 64];
    auto a = make_tensor(make_gmem_ptr(A), make_shape(N, N), make_stride(N, Int<1>{}));
    auto b = make_tensor(make_gmem_ptr(B), make_shape(N, N), make_stride(N, Int<1>{}));
    auto c = make_tensor(make_gmem_ptr(C), make_shape(N, N), make_stride(N, Int<1>{}));
    auto own = local_tile(c, make_shape(Int<64>{}, Int<64>{}), make_coord(blockIdx.y, blockIdx.x));
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    cutlass::Array<float, 16> sum;
    sum.fill(0.0f);
    for (int step = 0; step < N; step += 16) {
        for (int i = threadIdx.x; i < 16 * 64; i += 256) {
            left[i % 16 * 64 + i / 16] = a(blockIdx.y * 64 + i / 16, step + i % 16);
            right[i] = b(step + i / 64, blockIdx.x * 64 + i % 64);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sum[4 * i + j] += left[k * 64 + row + i] * right[k * 64 + column + j];
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) own(row + i / 4, column + i % 4) = sum[i];
}
