// Sum and largest magnitude of every row.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct RowStat { float sum; float peak; };

__global__ void row_sums(const float* x, RowStat* stat, const int rows, const int cols, const int stride)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    RowStat s = { 0.0f, 0.0f };
    for (int c = 0; c < cols; ++c) {
        const float v = x[row * stride + c];
        s.sum += v;
        s.peak = fmaxf(s.peak, fabsf(v));
    }
    stat[row] = s;
}

int main()
{
    const int rows = 500, cols = 100, stride = 104;
    std::vector<float> x(rows * stride, 7.f);
    std::vector<RowStat> s(rows);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) x[r * stride + c] = ((r * 131 + c * 17) % 256) / 32.f - 4.f;
    float* dx; RowStat* ds;
    cudaMalloc(&dx, x.size() * sizeof(float));
    cudaMalloc(&ds, rows * sizeof(RowStat));
    cudaMemcpy(dx, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
    row_sums<<<(rows + 31) / 32, 32>>>(dx, ds, rows, cols, stride);
    cudaMemcpy(s.data(), ds, rows * sizeof(RowStat), cudaMemcpyDeviceToHost);
    double a = 0, b = 0;
    for (auto& v : s) { a += v.sum; b += v.peak; }
    printf("%.4f %.4f\n", a, b);
    return 0;
}
