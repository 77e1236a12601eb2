// Adds a histogram of integers to counts that may hold others already. Bin = (v - first) / width; values outside are not counted.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void histogram(const int *values, int n, int first, int width, unsigned long long *counts, int bins)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        long long d = (long long)values[i] - first;
        if (d < 0) continue;
        long long b = d / width;
        if (b < bins) atomicAdd(&counts[b], 1ull);
    }
}

int main()
{
    const int n = 32768, bins = 64;
    std::vector<int> v(n);
    unsigned s = 5;
    for (int i = 0; i < n; ++i) { s = s * 1664525u + 1013904223u; v[i] = 1000 + (int)((s >> 10) % 1024u); }
    int *dv; unsigned long long *dc;
    cudaMalloc(&dv, n * sizeof(int));
    cudaMalloc(&dc, bins * sizeof(unsigned long long));
    cudaMemcpy(dv, v.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemset(dc, 0, bins * sizeof(unsigned long long));
    histogram<<<32, 256>>>(dv, n, 1000, 16, dc, bins);
    std::vector<unsigned long long> c(bins);
    cudaMemcpy(c.data(), dc, bins * sizeof(unsigned long long), cudaMemcpyDeviceToHost);
    unsigned long long sum = 0, w = 0;
    for (int b = 0; b < bins; ++b) { sum += c[b]; w += c[b] * (b + 1); }
    printf("counted %llu weighted %llu\n", sum, w);
}
