// Written for cudaops: a matrix product that is already tiled in shared memory and registers.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
blocked(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int N) {
    __shared__ float As[BK][BM];
    __shared__ float Bs[BK][BN];
    constexpr int threads = (BM / TM) * (BN / TN);
    const int tid = threadIdx.x, tr = tid / (BN / TN), tc = tid % (BN / TN);
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < N; k0 += BK) {
        for (int i = tid; i < BM * BK; i += threads) {
            const int r = i / BK, c = i % BK;
            As[c][r] = row0 + r < N && k0 + c < N ? A[(row0 + r) * N + k0 + c] : 0.0f;
        }
        for (int i = tid; i < BK * BN; i += threads) {
            const int r = i / BN, c = i % BN;
            Bs[r][c] = k0 + r < N && col0 + c < N ? B[(k0 + r) * N + col0 + c] : 0.0f;
        }
        __syncthreads();
        _Pragma("unroll")
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; ++i) a[i] = As[k][tr * TM + i];
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tc * TN + j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            const int r = row0 + tr * TM + i, c = col0 + tc * TN + j;
            if (r < N && c < N) C[r * N + c] = acc[i][j];
        }
}

int main(int argc, char** argv) {
    const int N = argc > 1 ? atoi(argv[1]) : 80;
    std::vector<float> a(N * N), b(N * N), c(N * N);
    for (int i = 0; i < N * N; i++) { a[i] = (i * 7 + 3) % 13 / 13.0f; b[i] = (i * 5 + 1) % 17 / 17.0f; }
    float *da, *db, *dc;
    cudaMalloc(&da, sizeof(float) * N * N);
    cudaMalloc(&db, sizeof(float) * N * N);
    cudaMalloc(&dc, sizeof(float) * N * N);
    cudaMemcpy(da, a.data(), sizeof(float) * N * N, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), sizeof(float) * N * N, cudaMemcpyHostToDevice);
    dim3 grid((N + 31) / 32, (N + 31) / 32);
    blocked<32, 32, 8, 4, 4><<<grid, 64>>>(da, db, dc, N);
    cudaMemcpy(c.data(), dc, sizeof(float) * N * N, cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : c) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f %.6f %.6f\n", s, c[0], c[N - 1], c[(N - 1) * N], c[N * N - 1]);
    return 0;
}
