// Written for cudaops: launches inside a helper function and inside macros that check errors.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t status = (call);                                                      \
        if (status != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define LAUNCH(kernel, grid, block, ...)   \
    do {                                   \
        kernel<<<grid, block>>>(__VA_ARGS__); \
        CHECK(cudaGetLastError());         \
    } while (0)
#define GRID_STRIDE(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)

__global__ void saxpy(int n, float a, const float* x, float* y) {
    GRID_STRIDE(i, n) { y[i] = a * x[i] + y[i]; }
}

__global__ void fill(float* p, int n, float v) {
    GRID_STRIDE(i, n) p[i] = v * (i % 23);
}

static void scale_add(float a, const float* x, float* y, int n, cudaStream_t stream = 0) {
    const int block = 64;
    saxpy<<<(n + block - 1) / block, block, 0, stream>>>(n, a, x, y);  // the one that matters
    CHECK(cudaGetLastError());
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 4000;
    float *x, *y, *h = (float*)malloc(n * sizeof(float));
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    CHECK(cudaMalloc(&y, n * sizeof(float)));
    LAUNCH(fill, 4, 64, x, n, 0.5f);
    LAUNCH(fill, 4, 64, y, n, 0.25f);
    for (int i = 0; i < 3; i++) scale_add(0.5f, x, y, n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(h, y, n * sizeof(float), cudaMemcpyDeviceToHost));
    double s = 0;
    for (int i = 0; i < n; i++) s += h[i];
    printf("checksum %.6e\ncorners %.6f %.6f\n", s, h[0], h[n - 1]);
    return 0;
}
