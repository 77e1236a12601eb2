// A kernel in a variable whose type is spelled out, and one that is chosen between two.
#include <cstdio>
#include <cuda_runtime.h>
typedef void (*kernel_t)(float*, const float*, int, int);
__global__ void add_rows(float* y, const float* x, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    for (int c = 0; c < cols; c++) y[r] += x[r * cols + c];
}
__global__ void clear_rows(float* y, const float* x, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) y[r] = x[r] * 0.0f * cols;
}
int main(int argc, char**) {
    const int rows = 500, cols = 20;
    static float h[rows * cols];
    float *x, *y;
    cudaMalloc(&x, sizeof h), cudaMalloc(&y, rows * 4);
    for (int i = 0; i < rows * cols; i++) h[i] = i % 11;
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemset(y, 0, rows * 4);
    const kernel_t step = &add_rows;
    step<<<4, 128>>>(y, x, rows, cols);
    auto chosen = argc > 5 ? clear_rows : add_rows;
    chosen<<<(rows + 127) / 128, 128>>>(y, x, rows, cols);
    void (*again)(float*, const float*, int, int) = add_rows;
    (*again)<<<4, 128>>>(y, x, rows, cols);
    cudaMemcpy(h, y, rows * 4, cudaMemcpyDeviceToHost);
    printf("%f\n", h[7]);
}
