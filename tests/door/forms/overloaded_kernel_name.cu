// several kernels overload one name, on the types of their arguments
#include <cstdio>
#include <cstdint>
#include <cuda_runtime.h>

__global__ void histogram(const uint8_t *data, int n, unsigned *bins)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[data[i] >> 4], 1u);
}

__global__ void histogram(const int16_t *data, int n, unsigned *bins)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[(data[i] + 32768) >> 12], 1u);
}

__global__ void histogram(const float *data, int n, unsigned *bins, float lo, float hi)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int b = (int)((data[i] - lo) / (hi - lo) * 16.0f);
    atomicAdd(&bins[min(max(b, 0), 15)], 1u);
}

static void report(const char *what, unsigned *bins)
{
    cudaDeviceSynchronize();
    printf("%-6s", what);
    for (int b = 0; b < 16; b++) {
        printf(" %u", bins[b]);
        bins[b] = 0;
    }
    printf("\n");
}

int main()
{
    const int n = 4096;
    uint8_t *u8;
    int16_t *s16;
    float *f32;
    unsigned *bins;
    cudaMallocManaged(&u8, n * sizeof *u8);
    cudaMallocManaged(&s16, n * sizeof *s16);
    cudaMallocManaged(&f32, n * sizeof *f32);
    cudaMallocManaged(&bins, 16 * sizeof *bins);
    for (int i = 0; i < n; i++) {
        u8[i] = (uint8_t)(i * i / 7);
        s16[i] = (int16_t)((i * 2654435761u) >> 16);
        f32[i] = (float)(i % 160) / 16.0f;
    }
    for (int b = 0; b < 16; b++) bins[b] = 0;

    histogram<<<n / 128, 128>>>(u8, n, bins);
    report("uint8", bins);
    histogram<<<n / 128, 128>>>(s16, n, bins);
    report("int16", bins);
    histogram<<<n / 128, 128>>>(f32, n, bins, 0.0f, 10.0f);
    report("float", bins);

    cudaFree(u8); cudaFree(s16); cudaFree(f32); cudaFree(bins);
    return 0;
}
