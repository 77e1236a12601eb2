// Tiles of 16 x 16 arrive by cp.async (cuda_pipeline.h) into two buffers; products are float, fused.
// baseline: gemm_half/gemm_half.cu
// @requires M > 0 && N > 0 && K > 0 && M % 16 == 0 && N % 16 == 0 && K % 16 == 0 && aligned(A, 16) && aligned(B, 16)
// @requires gridDim.x * blockDim.x >= N && gridDim.y * blockDim.y >= M && gridDim.z * blockDim.z == 1
// @launch fast grid=(N / 16, M / 16) block=(16, 16) args=(A, B, C, N, K)
#include <cuda_pipeline.h>
__global__ void fast(const __half* __restrict__ A, const __half* __restrict__ B, float* __restrict__ C, int N, int K)
{
    __shared__ __align__(16) __half a[2][16][16];
    __shared__ __align__(16) __half b[2][16][16];
    const int x = threadIdx.x, y = threadIdx.y, t = y * 16 + x;
    const int row = blockIdx.y * 16, col = blockIdx.x * 16;
    auto fetch = [&](int buffer, int k) {
        const int line = (t & 31) / 2, part = (t & 1) * 8;              // 32 pieces of eight halves a tile
        if (t < 32) __pipeline_memcpy_async(&a[buffer][line][part], A + (row + line) * K + k + part, 16);
        else if (t < 64) __pipeline_memcpy_async(&b[buffer][line][part], B + (k + line) * N + col + part, 16);
        __pipeline_commit();
    };
    float acc = 0.0f;
    fetch(0, 0);
    for (int k = 0, now = 0; k < K; k += 16, now ^= 1) {
        if (k + 16 < K) { fetch(now ^ 1, k + 16); __pipeline_wait_prior(1); }
        else __pipeline_wait_prior(0);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 16; ++e) acc = fmaf(__half2float(a[now][y][e]), __half2float(b[now][e][x]), acc);
        __syncthreads();
    }
    C[(row + y) * N + col + x] = acc;
}
