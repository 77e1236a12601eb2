// launch through a kernel pointer held in a struct ("vtable" in C style)
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

__global__ void fill(float *p, float base, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = base + (float)(i % 8);
}

typedef struct engine {
    const char *name;
    void (*init)(float *, float, int);
    void (*reduce)(const float *, float *, int, int);
    int block;
} engine_t;

static const engine_t ENGINE = {"naive", fill, rowsum, 32};

static int div_up(int a, int b) { return (a + b - 1) / b; }

static void run_engine(const engine_t *e, float *a, float *s, int rows, int cols)
{
    int n = rows * cols;
    e->init<<<div_up(n, 256), 256>>>(a, 1.0f, n);
    for (int rep = 0; rep < 4; rep++)
        e->reduce<<<div_up(rows, e->block), e->block>>>(a, s, rows, cols);
}

int main(void)
{
    int rows = 64, cols = 512;
    float *a, *s;
    float host[64];

    if (cudaMalloc((void **)&a, rows * cols * sizeof *a) != cudaSuccess ||
        cudaMalloc((void **)&s, rows * sizeof *s) != cudaSuccess) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    run_engine(&ENGINE, a, s, rows, cols);
    cudaMemcpy(host, s, sizeof host, cudaMemcpyDeviceToHost);

    float lo = host[0], hi = host[0];
    for (int r = 1; r < rows; r++) {
        if (host[r] < lo) lo = host[r];
        if (host[r] > hi) hi = host[r];
    }
    printf("engine %s: min %.1f max %.1f\n", ENGINE.name, lo, hi);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
