// Written for cudaops: C = A * B^T, both row-major: nt_product [n].
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__global__ void similarity(const float* queries, const float* keys, float* scores, int m, int n,
                           int k) {
    int q = blockIdx.y * blockDim.y + threadIdx.y;
    int key = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= m || key >= n) return;
    float dot = 0.f;
    for (int d = 0; d < k; d++) dot += queries[q * k + d] * keys[key * k + d];
    scores[q * n + key] = dot;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 48, m = n + 5, k = n - 3;
    std::vector<float> a(m * k), b(n * k), c(m * n);
    for (int i = 0; i < m * k; i++) a[i] = (i * 7 + 3) % 13 / 13.0f;
    for (int i = 0; i < n * k; i++) b[i] = (i * 5 + 1) % 17 / 17.0f;
    float *da, *db, *dc;
    cudaMalloc((void**)&da, a.size() * 4);
    cudaMalloc((void**)&db, b.size() * 4);
    cudaMalloc((void**)&dc, c.size() * 4);
    cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice);
    similarity<<<{(unsigned)(n + 15) / 16, (unsigned)(m + 7) / 8}, {16, 8}>>>(da, db, dc, m, n, k);
    cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : c) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f %.6f %.6f\n", s, c[0], c[n - 1], c[(m - 1) * n],
           c[m * n - 1]);
    return 0;
}
