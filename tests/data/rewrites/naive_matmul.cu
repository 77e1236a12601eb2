// Written for cudaops: a rewrite of `naive_matmul` in calibration/naive_matmul.cu that uses every directive.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
// @tune TILE = 16, 32
// @scratch spare bytes=sizeof(float)*N*2
// @scratch other bytes=max(N / 4, 1)
// @requires N % gridDim.x >= 0 && A != nullptr
// @launch tiled<TILE, PAD> grid=(ceil_div(N,TILE), min(gridDim.y, ceil_div(N,TILE))) block=(TILE, TILE) smem=64*1024 args=(A, B, C, N, spare + 4*N)
// @launch touch grid=(1) block=(32) args=(spare, 1)
#define PAD 1
#define CK 3
template <int T, int P>
__global__ void tiled(const float* A, const float* B, float* C, int N, float* spare) {
    __shared__ float a[T][T + P], b[T][T + P];
    int r = blockIdx.y * T + threadIdx.y, c = blockIdx.x * T + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < N; k += T) {
        a[threadIdx.y][threadIdx.x] = r < N && k + threadIdx.x < N ? A[r * N + k + threadIdx.x] : 0.0f;
        b[threadIdx.y][threadIdx.x] = c < N && k + threadIdx.y < N ? B[(k + threadIdx.y) * N + c] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < T; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        __syncthreads();
    }
    if (r < N && c < N) C[r * N + c] = sum;
    if (r == 0 && c < N) spare[c] = CK;
}
__global__ void touch(float* spare, int n) { spare[threadIdx.x] = n; }
