// Written for cudaops: C = alpha * A^T * B + beta * C: tn_alpha_beta [n].
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__global__ void gram(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                     float* C) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k) {
            acc += A[k * M + row] * B[k * N + col];
        }
        C[row * N + col] = alpha * acc + beta * C[row * N + col];
    }
}

int main(int argc, char** argv) {
    int N = argc > 1 ? atoi(argv[1]) : 48, M = N - 7, K = N + 9;
    std::vector<float> a(K * M), b(K * N), c(M * N);
    for (int i = 0; i < K * M; i++) a[i] = (i * 7 + 3) % 13 / 13.0f;
    for (int i = 0; i < K * N; i++) b[i] = (i * 5 + 1) % 17 / 17.0f;
    for (int i = 0; i < M * N; i++) c[i] = (i * 3 + 2) % 11 / 11.0f;
    float *da, *db, *dc;
    cudaMalloc(&da, sizeof(float) * a.size());
    cudaMalloc(&db, sizeof(float) * b.size());
    cudaMalloc(&dc, sizeof(float) * c.size());
    cudaMemcpy(da, a.data(), sizeof(float) * a.size(), cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), sizeof(float) * b.size(), cudaMemcpyHostToDevice);
    cudaMemcpy(dc, c.data(), sizeof(float) * c.size(), cudaMemcpyHostToDevice);
    dim3 threads(32, 4);
    dim3 blocks((N + threads.x - 1) / threads.x, (M + threads.y - 1) / threads.y);
    gram<<<blocks, threads>>>(M, N, K, 0.75f, da, db, -0.5f, dc);
    cudaMemcpy(c.data(), dc, sizeof(float) * c.size(), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : c) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f %.6f %.6f\n", s, c[0], c[N - 1], c[(M - 1) * N],
           c[M * N - 1]);
    return 0;
}
