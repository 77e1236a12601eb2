// Written for cudaops: the product that exemplar tiled_product rewrites; no size is a multiple of a tile.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void mm(const float* A, const float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
}
int main() {
    const int M = 70, N = 65, K = 37;
    static float a[M * K], b[K * N], c[M * N];
    float *dA, *dB, *dC;
    for (int i = 0; i < M * K; ++i) a[i] = (i * 7 % 13) / 13.0f;
    for (int i = 0; i < K * N; ++i) b[i] = (i * 5 % 17) / 17.0f;
    cudaMalloc(&dA, sizeof a); cudaMalloc(&dB, sizeof b); cudaMalloc(&dC, sizeof c);
    cudaMemcpy(dA, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(dB, b, sizeof b, cudaMemcpyHostToDevice);
    mm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(dA, dB, dC, M, N, K);
    cudaMemcpy(c, dC, sizeof c, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : c) sum += v;
    printf("checksum %.6e\n", sum);
    return 0;
}
