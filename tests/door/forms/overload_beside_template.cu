// A kernel and a template of its name, launched from a host template that means either.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}

template <typename T, typename N>
__global__ void rowsum(const T *a, T *s, N rows, N cols, T scale) {
    N r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] = a[r * cols] * scale;
}

template <typename... More>
static void sum_up(const float *a, float *s, int rows, int cols, More... more) {
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols, more...);
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    sum_up(a, s, rows, cols, 2.0f);
    for (int i = 0; i < 100; ++i) sum_up(a, s, rows, cols);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
