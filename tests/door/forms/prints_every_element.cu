// A line an element on stdout, 20 MB in all.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void scaled(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
int main() {
    int n = 1 << 20;
    std::vector<float> x(n, 1.0f), y(n);
    float *a, *b;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, n * sizeof(float));
    cudaMemcpy(a, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    scaled<<<n / 256, 256>>>(a, b, n);
    cudaMemcpy(y.data(), b, n * sizeof(float), cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; ++i) printf("y[%d]=%f\n", i, y[i]);
}
