// cuFFT beside the kernel, from real to complex numbers and back, in a plan of several rows.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cufft.h>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
__global__ void damped(cufftComplex *v, int count, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) v[i] = make_cuComplex(v[i].x * factor, v[i].y * factor);
}
int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 60, half = cols / 2 + 1;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cufftComplex *v;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMalloc(&v, rows * half * sizeof(cufftComplex));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    cufftHandle there, back;
    if (cufftPlan1d(&there, cols, CUFFT_R2C, rows) != CUFFT_SUCCESS) return 1;
    if (cufftPlan1d(&back, cols, CUFFT_C2R, rows) != CUFFT_SUCCESS) return 2;
    if (cufftExecR2C(there, a, v) != CUFFT_SUCCESS) return 3;
    damped<<<(rows * half + 63) / 64, 64>>>(v, rows * half, 1.0f / cols);
    if (cufftExecC2R(back, v, a) != CUFFT_SUCCESS) return 4;
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0, want = 0;
    for (float x : g) sum += x;
    for (float x : h) want += x;
    printf("sum %.3f\n", sum);
    cufftDestroy(there);
    cufftDestroy(back);
    return sum - want > 0.01 || want - sum > 0.01;
}
