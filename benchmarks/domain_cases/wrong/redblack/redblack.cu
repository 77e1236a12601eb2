// Red-black successive over-relaxation in place; cells marked in a byte mask keep their value.
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <cuda_runtime.h>

__global__ void relax(float *u, const float *rhs, const unsigned char *fixed, int w, int h, float omega, int color)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1;
    int y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x >= w - 1 || y >= h - 1) return;
    if (((x + y) & 1) != color) return;
    int i = y * w + x;
    if (fixed[i]) return;
    float gs = 0.25f * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - rhs[i]);
    u[i] = (1.0f - omega) * u[i] + omega * gs;
}

int main(void)
{
    const int w = 130, h = 98, n = w * h;
    float *u = (float *)calloc(n, sizeof(float)), *f = (float *)calloc(n, sizeof(float));
    unsigned char *m = (unsigned char *)calloc(n, 1);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            int edge = x == 0 || y == 0 || x == w - 1 || y == h - 1;
            m[y * w + x] = edge;
            u[y * w + x] = edge ? sinf(0.1f * x) + cosf(0.07f * y) : 0.5f;
            f[y * w + x] = 0.01f * ((x * 5 + y * 3) % 11 - 5);
        }
    float *du, *df; unsigned char *dm;
    cudaMalloc((void **)&du, n * sizeof(float)); cudaMalloc((void **)&df, n * sizeof(float)); cudaMalloc((void **)&dm, n);
    cudaMemcpy(du, u, n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(df, f, n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dm, m, n, cudaMemcpyHostToDevice);
    dim3 block(32, 8), grid((w - 2 + 31) / 32, (h - 2 + 7) / 8);
    for (int sweep = 0; sweep < 3; sweep++)
        for (int color = 0; color < 2; color++)
            relax<<<grid, block>>>(du, df, dm, w, h, 1.0f, color);
    cudaMemcpy(u, du, n * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (int i = 0; i < n; i++) { s += u[i]; q += u[i] * u[i]; }
    printf("mean %.6f rms %.6f\n", s / n, sqrt(q / n));
    return 0;
}
