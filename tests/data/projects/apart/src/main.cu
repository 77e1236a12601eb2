#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include "ops.cuh"
int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    ops::rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    ops::sum_again(a, s, rows, cols);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
