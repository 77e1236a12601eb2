// C = A B, half inputs, float sums and output, all row-major.
#include <cstdio>
#include <vector>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void gemm_half(const __half *A, const __half *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k) acc += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);
        C[row * N + col] = acc;
    }
}

int main()
{
    const int M = 64, N = 80, K = 48;
    std::vector<__half> a(M * K), b(K * N);
    std::vector<float> c(M * N);
    for (int i = 0; i < M * K; ++i) a[i] = __float2half((i * 7 % 41) / 20.0f - 1.0f);
    for (int i = 0; i < K * N; ++i) b[i] = __float2half((i * 11 % 37) / 18.0f - 1.0f);
    __half *da, *db; float *dc;
    cudaMalloc(&da, a.size() * 2); cudaMalloc(&db, b.size() * 2); cudaMalloc(&dc, c.size() * 4);
    cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
    gemm_half<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(da, db, dc, M, N, K);
    cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (float v : c) { s += v; q += v * v; }
    printf("%.3f %.3f\n", s, q);
    return 0;
}
