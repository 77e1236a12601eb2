// Index of the largest value of each row (smallest index among equals, -1 if nothing is above -inf).
#include <cstdio>
#include <vector>
#include <cmath>
#include <cuda_runtime.h>
#define NT 128

__global__ void row_argmax(const float *a, int *where, int cols)
{
    __shared__ float val[NT];
    __shared__ int idx[NT];
    int t = threadIdx.x;
    const float *row = a + (size_t)blockIdx.x * cols;
    float best = -INFINITY;
    int arg = -1;
    for (int c = t; c < cols; c += NT)
        if (row[c] > best) { best = row[c]; arg = c; }
    val[t] = best; idx[t] = arg;
    __syncthreads();
    for (int s = NT / 2; s > 0; s >>= 1) {
        if (t < s) {
            if (val[t + s] > val[t] || (val[t + s] == val[t] && idx[t + s] < idx[t])) {
                val[t] = val[t + s];
                idx[t] = idx[t + s];
            }
        }
        __syncthreads();
    }
    if (t == 0) where[blockIdx.x] = idx[0];
}

int main()
{
    const int rows = 64, cols = 333;
    std::vector<float> a(rows * cols);
    std::vector<int> w(rows);
    for (int i = 0; i < rows * cols; ++i) a[i] = (float)((i * 7919u ^ (i >> 3)) % 61) - 30.f;
    float *da; int *dw;
    cudaMalloc(&da, a.size() * 4); cudaMalloc(&dw, rows * 4);
    cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice);
    row_argmax<<<rows, NT>>>(da, dw, cols);
    cudaMemcpy(w.data(), dw, rows * 4, cudaMemcpyDeviceToHost);
    long s = 0;
    for (int i = 0; i < rows; ++i) s += (long)w[i] * (i + 1);
    printf("checksum %ld\n", s);
    return 0;
}
