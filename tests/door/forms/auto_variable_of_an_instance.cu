// An instance of a template kept in a variable, another one in each branch, which the attribute and
// the launch name.
#include <cstdio>
#include <cuda_runtime.h>
namespace ops {
template <int ROWS, int COLS>
__global__ void scale(const float* x, float* y, int n, float a) {
    extern __shared__ float unused[];
    int i = blockIdx.x * ROWS + threadIdx.x;
    if (i >= n) return;
    float s = 0.0f;
    for (int k = 0; k < COLS; ++k) s += x[i] * a / (k + 1);
    y[i] = s;
}
}  // namespace ops
template <int COLS>
void run(const float* x, float* y, int n) {
    if (n > 100000) {
        auto kernel = ops::scale<256, COLS>;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 8192);
        kernel<<<(n + 255) / 256, 256, 8192>>>(x, y, n, 0.5f);
    } else {
        auto kernel = &ops::scale<128, COLS>;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 4096);
        kernel<<<(n + 127) / 128, 128, 4096>>>(x, y, n, 0.5f);
    }
}
int main() {
    const int n = 3000;
    float *x, *y, h[n];
    cudaMalloc(&x, sizeof h), cudaMalloc(&y, sizeof h);
    for (int i = 0; i < n; i++) h[i] = i % 17;
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    run<24>(x, y, n);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    printf("%f\n", h[77]);
}
