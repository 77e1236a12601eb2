// Activations to int8, a scale a row: q = clamp(round(x / scale) + zero, lo, hi), rounding half to even.
#include <cstdio>
#include <vector>
#include <cmath>
#include <cuda_runtime.h>

struct QuantSpec { int zero, lo, hi; };

__global__ void quantize(const float *x, const float *scale, signed char *q, int rows, int cols, QuantSpec spec)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y;
    if (r >= rows || c >= cols) return;
    float s = scale[r];
    float v = s > 0.f ? rintf(x[r * cols + c] / s) : 0.f;
    v = fminf(fmaxf(v + spec.zero, (float)spec.lo), (float)spec.hi);
    q[r * cols + c] = (signed char)(int)v;
}

int main()
{
    const int rows = 48, cols = 200, n = rows * cols;
    std::vector<float> x(n), s(rows);
    std::vector<signed char> q(n);
    for (int r = 0; r < rows; ++r) {
        float top = 0;
        for (int c = 0; c < cols; ++c) {
            x[r * cols + c] = std::sin(0.37f * c + r) * (1 + r % 5);
            top = std::fmax(top, std::fabs(x[r * cols + c]));
        }
        s[r] = top / 127.f;
    }
    float *dx, *ds; signed char *dq;
    cudaMalloc(&dx, n * sizeof(float)); cudaMalloc(&ds, rows * sizeof(float)); cudaMalloc(&dq, n);
    cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(ds, s.data(), rows * sizeof(float), cudaMemcpyHostToDevice);
    quantize<<<dim3((cols + 63) / 64, rows), 64>>>(dx, ds, dq, rows, cols, QuantSpec{0, -128, 127});
    cudaMemcpy(q.data(), dq, n, cudaMemcpyDeviceToHost);
    long a = 0, b = 0;
    for (auto v : q) { a += v; b += v * v; }
    printf("sum %ld squares %ld\n", a, b);
    return 0;
}
