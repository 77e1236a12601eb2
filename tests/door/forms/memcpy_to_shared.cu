// no rewrite: the author's kernel is not right either
// every thread copies the same 100 bytes into shared memory by memcpy
#include <cstdio>
#include <cstring>
#include <vector>
#include <cuda_runtime.h>

__device__ float weights[25];
__global__ void fill() { if (threadIdx.x < 25) weights[threadIdx.x] = threadIdx.x % 3 + 1; }
__global__ void weighted_sums(const float *a, float *s, int rows, int cols) {
    __shared__ float local[25];
    memcpy(local, weights, sizeof local);
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c] * local[c % 25];
        s[r] = t;
    }
}

int main() {
    int rows = 64, cols = 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    fill<<<1, 32>>>();
    weighted_sums<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("%f\n", sum);
    return 0;
}
