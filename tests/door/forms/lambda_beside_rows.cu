// nvcc: --extended-lambda
// a device lambda held in a variable, and a kernel of another kind that takes most of the time
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

template <class F>
__global__ void parallel_for(int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) f(i);
}
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; }
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    float *a, *s;
    cudaMalloc(&a, rows * cols * sizeof(float));
    cudaMalloc(&s, rows * sizeof(float));
    auto fill = [=] __device__ (int i) { a[i] = float(i % 7) - 2.5f; };
    parallel_for<<<(rows * cols + 255) / 256, 256>>>(rows * cols, fill);
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    float scale = 2.0f;
    parallel_for<<<1, rows>>>(rows, [s, scale] __device__ (int i) { s[i] *= scale; });
    std::vector<float> g(rows);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
