// y = A x with A in ELLPACK, column by column with a pitch; entries with a negative column are padding, wherever they stand.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void ell(const float *val, const int *col, const float *x, float *y, int rows, int width, int pitch)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float s = 0.f;
    for (int k = 0; k < width; ++k) {
        int c = col[k * pitch + r];
        if (c < 0) continue;
        s += val[k * pitch + r] * x[c];
    }
    y[r] = s;
}

int main()
{
    const int rows = 8192, width = 9;
    std::vector<float> val(rows * width, 0.f), x(rows), y(rows);
    std::vector<int> col(rows * width, -1);
    for (int r = 0; r < rows; ++r) {
        x[r] = 0.5f + (r * 13 % 31) * 0.03125f;
        int used = 0;
        for (int j : {r, r - 1, r + 1, r - 64, r + 64, r - 65, r + 65}) {
            if (j < 0 || j >= rows) continue;
            col[used * rows + r] = j;
            val[used * rows + r] = j == r ? 4.f : -0.25f * (1 + (r + j) % 3);
            ++used;
        }
    }
    float *dv, *dx, *dy; int *dc;
    cudaMalloc(&dv, val.size() * 4); cudaMalloc(&dc, col.size() * 4); cudaMalloc(&dx, rows * 4); cudaMalloc(&dy, rows * 4);
    cudaMemcpy(dv, val.data(), val.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dc, col.data(), col.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x.data(), rows * 4, cudaMemcpyHostToDevice);
    ell<<<rows / 128, 128>>>(dv, dc, dx, dy, rows, width, rows);
    cudaMemcpy(y.data(), dy, rows * 4, cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (float v : y) { s += v; q += v * v; }
    printf("%.5f %.5f\n", s, q);
}
