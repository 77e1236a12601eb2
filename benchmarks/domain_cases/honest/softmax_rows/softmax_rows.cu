// Softmax of every row; one thread walks one row three times.
#include <cfloat>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void softmax_rows(const float* logits, float* probs, int rows, int cols)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* x = logits + (size_t)r * cols;
    float* p = probs + (size_t)r * cols;
    float m = -FLT_MAX;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, x[c]);
    float s = 0.0f;
    for (int c = 0; c < cols; ++c) s += expf(x[c] - m);
    for (int c = 0; c < cols; ++c) p[c] = expf(x[c] - m) / s;
}

int main()
{
    const int rows = 300, cols = 77;
    size_t bytes = sizeof(float) * rows * cols;
    float* h = (float*)malloc(bytes);
    for (int i = 0; i < rows * cols; ++i) h[i] = (float)((i * 1103515245u + 12345u) >> 20 & 255) / 32.0f - 4.0f;
    float *d_in, *d_out;
    cudaMalloc(&d_in, bytes);
    cudaMalloc(&d_out, bytes);
    cudaMemcpy(d_in, h, bytes, cudaMemcpyHostToDevice);
    softmax_rows<<<(rows + 63) / 64, 64>>>(d_in, d_out, rows, cols);
    cudaMemcpy(h, d_out, bytes, cudaMemcpyDeviceToHost);
    double all = 0, sq = 0;
    for (int i = 0; i < rows * cols; ++i) { all += h[i]; sq += h[i] * h[i]; }
    printf("sum %.4f squares %.6f\n", all, sq);
    cudaFree(d_in); cudaFree(d_out); free(h);
    return 0;
}
