// Batch norm (folded) and leaky ReLU on half precision activations.
#include <cstdio>
#include <vector>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void half_leaky(const __half* x, __half* y, float scale, float shift, float slope, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        __half v = __hfma(x[i], __float2half(scale), __float2half(shift));
        y[i] = __hgt(v, __float2half(0.0f)) ? v : __hmul(v, __float2half(slope));
    }
}

int main()
{
    const int n = 10007;
    std::vector<__half> h(n);
    for (int i = 0; i < n; ++i) h[i] = __float2half(((i * 37) % 512) / 128.0f - 2.0f);
    __half *dx, *dy;
    cudaMalloc(&dx, n * sizeof(__half));
    cudaMalloc(&dy, n * sizeof(__half));
    cudaMemcpy(dx, h.data(), n * sizeof(__half), cudaMemcpyHostToDevice);
    half_leaky<<<(n + 255) / 256, 256>>>(dx, dy, 0.75f, 0.125f, 0.01f, n);
    cudaMemcpy(h.data(), dy, n * sizeof(__half), cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (auto v : h) { double f = __half2float(v); s += f; q += f * f; }
    printf("%.4f %.4f\n", s, q);
    return 0;
}
