// Both of two kernels of one name are launched: one above its definition, with a null pointer and a
// conversion.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
__global__ void rowsum(const double *, float *, int, int);

static void sum_doubles(const double *d, float *s, int rows) {
    rowsum<<<1, 32>>>(d, s, rows, 1);
    rowsum<<<1, 32>>>(d, 0, short(0), 1);
}

__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}

__global__ void rowsum(const double *a, float *s, int rows, int cols) {
    for (int r = threadIdx.x; r < rows; r += blockDim.x) s[r] = float(a[r * cols]);
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    double *d;
    cudaMalloc(&d, rows * sizeof(double));
    cudaMemset(d, 0, rows * sizeof(double));
    sum_doubles(d, s, rows);
    for (int i = 0; i < 100; ++i) rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(d);
    cudaFree(s);
    return 0;
}
