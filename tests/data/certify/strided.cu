// Written for cudaops: a stride that no warp coalesces, so that a rewrite gains without effort.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void correlate(const float* x, float* y, int n) {
    int i = threadIdx.x * gridDim.x + blockIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 32; ++k) sum += x[(i + k * 64) % n] * x[(i + k * 96) % n];
    y[i] = sum;
}

int main() {
    const int n = 4096;
    static float h[n];
    for (int i = 0; i < n; ++i) h[i] = (i * 7 % 13) / 13.0f;
    float *x, *y;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    correlate<<<64, 64>>>(x, y, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : h) sum += v;
    printf("checksum %.6e\n", sum);
    return 0;
}
