// Segmented inclusive scan of the rows of a matrix, a block a row. A segment begins wherever the head flag is not zero.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define THREADS 128

__global__ void segmented_scan(const float *values, const int *heads, float *out, int cols)
{
    __shared__ float v[2][THREADS];
    __shared__ int f[2][THREADS];
    int t = threadIdx.x, row = blockIdx.x, cur = 0;
    v[0][t] = t < cols ? values[row * cols + t] : 0.f;
    f[0][t] = t < cols ? (heads[row * cols + t] != 0) : 0;
    __syncthreads();
    for (int d = 1; d < THREADS; d *= 2) {
        float x = v[cur][t];
        int h = f[cur][t];
        if (t >= d) {
            if (!h) x = v[cur][t - d] + x;
            h |= f[cur][t - d];
        }
        v[1 - cur][t] = x;
        f[1 - cur][t] = h;
        cur = 1 - cur;
        __syncthreads();
    }
    if (t < cols) out[row * cols + t] = v[cur][t];
}

int main()
{
    const int rows = 96, cols = 120, n = rows * cols;
    std::vector<float> a(n), o(n);
    std::vector<int> h(n);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) {
            a[r * cols + c] = 0.25f + ((r * 131 + c * 17) % 64) / 64.f;
            h[r * cols + c] = c % 8 == 0 && (c % 32 == 0 || (r + c / 8) % 3 != 0);
        }
    float *da, *dout; int *dh;
    cudaMalloc(&da, n * sizeof(float)); cudaMalloc(&dout, n * sizeof(float)); cudaMalloc(&dh, n * sizeof(int));
    cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dh, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    segmented_scan<<<rows, THREADS>>>(da, dh, dout, cols);
    cudaMemcpy(o.data(), dout, n * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0, m = 0;
    for (float x : o) { s += x; m = x > m ? x : m; }
    printf("%.4f %.4f\n", s, m);
}
