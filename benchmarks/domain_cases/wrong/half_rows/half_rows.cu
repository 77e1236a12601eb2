// Rows of a half-precision matrix times a weight vector, summed in float, added to a residual and clamped to the finite range.
#include <cstdio>
#include <vector>
#include <cmath>
#include <cuda_runtime.h>
#include <cuda_fp16.h>

__global__ void row_dot(const __half *a, const __half *weight, const __half *residual, __half *out, int rows, int cols, float scale)
{
    int r = blockIdx.x * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += 32) s += __half2float(a[r * cols + c]) * __half2float(weight[c]);
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (threadIdx.x == 0) {
        float v = scale * s + __half2float(residual[r]);
        v = fminf(fmaxf(v, -65504.f), 65504.f);
        out[r] = __float2half(v);
    }
}

int main()
{
    const int rows = 512, cols = 64;
    std::vector<__half> a(rows * cols), w(cols), res(rows), o(rows);
    for (int i = 0; i < rows * cols; ++i) a[i] = __float2half(((i * 37) % 8 - 3) * 0.5f);
    for (int c = 0; c < cols; ++c) w[c] = __float2half(0.25f * (c % 4 - 1));
    for (int r = 0; r < rows; ++r) res[r] = __float2half(0.f);
    __half *da, *dw, *dr, *dout;
    cudaMalloc(&da, rows * cols * 2); cudaMalloc(&dw, cols * 2); cudaMalloc(&dr, rows * 2); cudaMalloc(&dout, rows * 2);
    cudaMemcpy(da, a.data(), rows * cols * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(dw, w.data(), cols * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(dr, res.data(), rows * 2, cudaMemcpyHostToDevice);
    row_dot<<<rows / 4, dim3(32, 4)>>>(da, dw, dr, dout, rows, cols, 1.0f);
    cudaMemcpy(o.data(), dout, rows * 2, cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (auto h : o) { s += __half2float(h); q += __half2float(h) * __half2float(h); }
    printf("%.4f %.4f\n", s, q);
}
