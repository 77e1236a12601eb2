// Running totals of every row.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void running_totals(const float* __restrict__ in, float* __restrict__ out, int rows, int cols)
{
    for (int r = blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x) {
        float total = 0.0f;
        for (int c = 0; c < cols; ++c) {
            total += in[r * cols + c];
            out[r * cols + c] = total;
        }
    }
}

int main()
{
    const int rows = 120, cols = 211;
    std::vector<float> a(rows * cols);
    for (int i = 0; i < rows * cols; ++i) a[i] = ((i * 193) % 1000) * 0.001f - 0.25f;
    float *di, *dd;
    cudaMalloc(&di, a.size() * sizeof(float));
    cudaMalloc(&dd, a.size() * sizeof(float));
    cudaMemcpy(di, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);
    running_totals<<<2, 64>>>(di, dd, rows, cols);
    cudaMemcpy(a.data(), dd, a.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : a) s += v;
    printf("%.3f last %.4f\n", s, a.back());
    return 0;
}
