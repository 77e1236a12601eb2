// Written for cudaops: the update that exemplar vector_stream rewrites; n is no multiple of four.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void axpy(const float* x, const float* y, float* z, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
int main() {
    const int n = 9003;
    static float x[n], y[n], z[n];
    float *dx, *dy, *dz;
    for (int i = 0; i < n; ++i) { x[i] = (i * 7 % 13) / 13.0f; y[i] = (i * 5 % 17) / 17.0f; }
    cudaMalloc(&dx, sizeof x); cudaMalloc(&dy, sizeof y); cudaMalloc(&dz, sizeof z);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    cudaMemcpy(dy, y, sizeof y, cudaMemcpyHostToDevice);
    axpy<<<(n + 63) / 64, 64>>>(dx, dy, dz, 1.5f, n);
    cudaMemcpy(z, dz, sizeof z, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += z[i] * (i % 11);
    printf("checksum %.6e\n", sum);
    return 0;
}
