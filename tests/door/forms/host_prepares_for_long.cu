// The host is at work before the first launch for longer than a profile runs a program.
// timeout: 30
#include <chrono>
#include <cstdio>
#include <thread>
#include <cuda_runtime.h>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
int main() {
    int rows = 64, cols = 128;
    float *a, *s;
    std::this_thread::sleep_for(std::chrono::seconds(12));
    cudaMallocManaged(&a, rows * cols * sizeof(float));
    cudaMallocManaged(&s, rows * sizeof(float));
    for (int i = 0; i < rows * cols; ++i) a[i] = float(i % 7) - 2.5f;
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    cudaDeviceSynchronize();
    printf("%g\n", s[0]);
    return 0;
}
