// __launch_bounds__ and __restrict__ on a kernel declared before and defined after main
#include <stdio.h>
#include <stdlib.h>
#include <math.h>

#define BDIM 128
#define MIN_BLOCKS 4

__global__ void __launch_bounds__(BDIM, MIN_BLOCKS)
heat_step(const float *__restrict__ u, float *__restrict__ v, const float *__restrict__ kappa, int nx, int ny);

int main(int argc, char **argv)
{
    int nx = 128, ny = 64, steps = 20;
    size_t sz = sizeof(float) * nx * ny;
    float *h = (float *)calloc(nx * ny, sizeof(float));
    float *u, *v, *k;

    cudaMalloc((void **)&u, sz);
    cudaMalloc((void **)&v, sz);
    cudaMalloc((void **)&k, sz);

    for (int i = 0; i < nx * ny; i++)
        h[i] = (i % nx < nx / 2) ? 0.20f : 0.05f;
    cudaMemcpy(k, h, sz, cudaMemcpyHostToDevice);
    for (int i = 0; i < nx * ny; i++)
        h[i] = 0.0f;
    h[(ny / 2) * nx + nx / 2] = 1000.0f;
    cudaMemcpy(u, h, sz, cudaMemcpyHostToDevice);
    cudaMemcpy(v, h, sz, cudaMemcpyHostToDevice);

    for (int t = 0; t < steps; t++) {
        heat_step<<<(nx * ny + BDIM - 1) / BDIM, BDIM>>>(u, v, k, nx, ny);
        float *tmp = u;
        u = v;
        v = tmp;
    }
    cudaMemcpy(h, u, sz, cudaMemcpyDeviceToHost);
    int c = (ny / 2) * nx + nx / 2;
    printf("centre %.3f left %.3f right %.3f\n", h[c], h[c - 4], h[c + 4]);
    cudaFree(u);
    cudaFree(v);
    cudaFree(k);
    free(h);
    return 0;
}

__global__ void __launch_bounds__(BDIM, MIN_BLOCKS)
heat_step(const float *__restrict__ u, float *__restrict__ v, const float *__restrict__ kappa, int nx, int ny)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % nx, y = i / nx;
    if (x > 0 && x < nx - 1 && y > 0 && y < ny - 1)
        v[i] = u[i] + kappa[i] * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4.0f * u[i]);
}
