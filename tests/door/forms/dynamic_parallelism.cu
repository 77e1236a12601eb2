// no rewrite: `<<<` launches a kernel
// not yet on cuda: units are not linked with the device runtime
// nvcc: -rdc=true
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__global__ void child(const float *a, float *s, int r, int cols) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; }
__global__ void parent(const float *a, float *s, int rows, int cols) { int r = threadIdx.x; if (r < rows) child<<<1, 1>>>(a, s, r, cols); }

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    parent<<<1, 64>>>(a, s, rows, cols);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
