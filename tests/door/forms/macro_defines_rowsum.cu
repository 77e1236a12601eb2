// the kernel is a macro's, its name an argument
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define KERNEL_REDUCING_ROWS(name, T, step) \
__global__ void name(const T *a, T *s, int rows, int cols) { \
    int r = blockIdx.x * blockDim.x + threadIdx.x; \
    if (r < rows) { \
        T t = 0; \
        for (int c = 0; c < cols; ++c) { T v = a[r * cols + c]; step; } \
        s[r] = t; \
    } \
}
KERNEL_REDUCING_ROWS(rowsum, float, t += v)
KERNEL_REDUCING_ROWS(rowmax, float, t = v > t ? v : t);

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    rowmax<<<1, 64>>>(a, s, rows < 64 ? rows : 64, cols);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
