// a switch picks which of several kernels a helper launches
#include <cstdio>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

__global__ void rowmax(const float *a, float *s, int rows, int cols)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float m = a[r * cols];
    for (int c = 1; c < cols; ++c)
        m = fmaxf(m, a[r * cols + c]);
    s[r] = m;
}

__global__ void rowfirst(const float *a, float *s, int rows, int cols)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] = a[r * cols];
}

enum Op { OP_SUM, OP_MAX, OP_FIRST };

bool dispatch(Op op, const float *a, float *s, int rows, int cols)
{
    const int bs = 32, gs = (rows + bs - 1) / bs;
    switch (op) {
    case OP_SUM:
        rowsum<<<gs, bs>>>(a, s, rows, cols);
        break;
    case OP_MAX:
        rowmax<<<gs, bs>>>(a, s, rows, cols);
        break;
    case OP_FIRST: rowfirst<<<gs, bs>>>(a, s, rows, cols); break;
    default:
        return false;
    }
    return cudaGetLastError() == cudaSuccess;
}

int main()
{
    const int rows = 64, cols = 512;
    std::vector<float> a(rows * cols), s(rows);
    for (int i = 0; i < rows * cols; ++i)
        a[i] = float((i * 13) % 101);
    float *da, *ds;
    cudaMalloc(&da, a.size() * 4);
    cudaMalloc(&ds, s.size() * 4);
    cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice);

    const Op plan[] = {OP_FIRST, OP_MAX, OP_SUM, OP_SUM, OP_SUM};
    for (Op op : plan) {
        if (!dispatch(op, da, ds, rows, cols)) printf("op %d failed\n", (int)op);
        cudaMemcpy(s.data(), ds, s.size() * 4, cudaMemcpyDeviceToHost);
        printf("op %d: %.1f %.1f\n", (int)op, s[1], s[rows - 2]);
    }
    cudaFree(da);
    cudaFree(ds);
    return 0;
}
