// Functions that are no kernels have the names of kernels: the host's version, a template of it, one
// of the device, and a declaration with other parameters that nothing defines.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
__global__ void rowsum(/* as below */);
__global__ void halve(float *s, unsigned rows);
__device__ float scale(float x) { return 0.5f * x; }
template <typename T> void add_one(T *s, T rows) { for (int i = 0; i < int(rows); ++i) s[i] += 1; }
template <typename T> __global__ void add_one(T *s, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] += 1;
}
__global__ void scale(float *s, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] = scale(s[r]);
}

void rowsum(const float *a, std::vector<float> &s, int cols) {
    for (size_t r = 0; r < s.size(); ++r) {
        s[r] = 0;
        for (int c = 0; c < cols; ++c) s[r] += a[r * cols + c];
    }
}
void halve(std::vector<float> &s) { for (float &x : s) x /= 2; }

__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows), right(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    for (int i = 0; i < 100; ++i) rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    halve<<<(rows + 31) / 32, 32>>>(s, rows);
    add_one<<<(rows + 31) / 32, 32>>>(s, rows);
    scale<<<(rows + 31) / 32, 32>>>(s, rows);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    rowsum(h.data(), right, cols);
    halve(right);
    add_one(right.data(), float(rows));
    float worst = 0;
    for (int r = 0; r < rows; ++r) worst = std::max(worst, std::abs(g[r] - 0.5f * right[r]));
    printf("worst %g first %g\n", worst, g[0]);
    cudaFree(a);
    cudaFree(s);
    return worst > 1e-3f;
}

__global__ void halve(float *s, unsigned int rows) {
    unsigned r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] /= 2;
}
