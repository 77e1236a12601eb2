// nvcc: -DK=5 -DN=64 -DM=3 -DFormat=1
// Macros whose names our headers give their template parameters, from the command and from the text.
#define P 512
#define Op (K + M)
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cstdio>
#include <vector>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}

int main() {
    std::vector<float> h(N * P), g(N);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % Op) - Format;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<2, 32>>>(a, s, N, P);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    printf("first %g last %g\n", g[0], g[N - 1]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
