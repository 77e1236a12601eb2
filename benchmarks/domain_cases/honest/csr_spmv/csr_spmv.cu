// y = alpha * A x + beta * y, CSR, a thread a row. Some rows are empty.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { printf("%s\n", cudaGetErrorString(e_)); return 1; } } while (0)

__global__ void spmv_csr_scalar(int num_rows, const int *row_ptr, const int *col_idx, const float *vals,
                                const float *x, float *y, float alpha, float beta)
{
    int row = blockDim.x * blockIdx.x + threadIdx.x;
    if (row < num_rows) {
        float dot = 0;
        for (int jj = row_ptr[row]; jj < row_ptr[row + 1]; jj++)
            dot += vals[jj] * x[col_idx[jj]];
        y[row] = alpha * dot + beta * y[row];
    }
}

int main()
{
    const int n = 2000;
    std::vector<int> ptr(n + 1), col;
    std::vector<float> val, x(n), y(n);
    for (int r = 0; r < n; ++r) {
        int len = (r * 7) % 13 == 0 ? 0 : (r * 31) % 24;
        for (int k = 0; k < len; ++k) { col.push_back((r + k * k * 5) % n); val.push_back(1.0f / (1 + (r + k) % 9) - 0.3f); }
        ptr[r + 1] = (int)col.size();
        x[r] = (r % 100) * 0.02f - 1.f;
        y[r] = (r % 7) * 0.5f;
    }
    int *dptr, *dcol; float *dval, *dx, *dy;
    CHECK(cudaMalloc(&dptr, ptr.size() * 4)); CHECK(cudaMalloc(&dcol, col.size() * 4)); CHECK(cudaMalloc(&dval, val.size() * 4));
    CHECK(cudaMalloc(&dx, n * 4)); CHECK(cudaMalloc(&dy, n * 4));
    CHECK(cudaMemcpy(dptr, ptr.data(), ptr.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dcol, col.data(), col.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dval, val.data(), val.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dx, x.data(), n * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dy, y.data(), n * 4, cudaMemcpyHostToDevice));
    spmv_csr_scalar<<<(n + 255) / 256, 256>>>(n, dptr, dcol, dval, dx, dy, 1.5f, 0.25f);
    CHECK(cudaMemcpy(y.data(), dy, n * 4, cudaMemcpyDeviceToHost));
    double s = 0, q = 0;
    for (float v : y) { s += v; q += v * v; }
    printf("%.5f %.5f\n", s, q);
    return 0;
}
