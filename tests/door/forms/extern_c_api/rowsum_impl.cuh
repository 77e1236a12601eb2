// kernel and C entry points, included once by main.cu
#pragma once
#include "rowsum_api.h"

extern "C" {

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

static struct {
    int rows, cols;
    float *a, *s;
} g_ctx;

int rs_init(int rows, int cols)
{
    g_ctx.rows = rows;
    g_ctx.cols = cols;
    if (cudaMalloc((void **)&g_ctx.a, sizeof(float) * rows * cols)) return -1;
    if (cudaMalloc((void **)&g_ctx.s, sizeof(float) * rows)) return -2;
    return 0;
}

int rs_upload(const float *host)
{
    return cudaMemcpy(g_ctx.a, host, sizeof(float) * g_ctx.rows * g_ctx.cols, cudaMemcpyHostToDevice);
}

int rs_compute(float *host_out)
{
    rowsum<<<(g_ctx.rows + 63) / 64, 64>>>(g_ctx.a, g_ctx.s, g_ctx.rows, g_ctx.cols);
    return cudaMemcpy(host_out, g_ctx.s, sizeof(float) * g_ctx.rows, cudaMemcpyDeviceToHost);
}

void rs_shutdown(void)
{
    cudaFree(g_ctx.a);
    cudaFree(g_ctx.s);
}

} /* extern "C" */
