// Written for cudaops: the matrix-vector product that exemplar split_rows rewrites.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void gemv(const float* A, const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < cols; ++k) sum += A[row * cols + k] * x[k];
    y[row] = sum;
}
int main() {
    const int rows = 45, cols = 307;
    static float a[rows * cols], x[cols], y[rows];
    float *dA, *dx, *dy;
    for (int i = 0; i < rows * cols; ++i) a[i] = (i * 7 % 13) / 13.0f;
    for (int i = 0; i < cols; ++i) x[i] = (i * 5 % 17) / 17.0f;
    cudaMalloc(&dA, sizeof a); cudaMalloc(&dx, sizeof x); cudaMalloc(&dy, sizeof y);
    cudaMemcpy(dA, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    gemv<<<(rows + 31) / 32, 32>>>(dA, dx, dy, rows, cols);
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : y) sum += v;
    printf("checksum %.6e\n", sum);
    return 0;
}
