// Written for cudaops: the first CUDA program of every tutorial: vector_add [n].
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

extern "C" __global__ void add(const float* x, const float* y, float* z, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}

int main(int argc, char** argv) {
    size_t n = argc > 1 ? strtoull(argv[1], nullptr, 10) : 10000;
    std::vector<float> x(n), y(n), z(n);
    for (size_t i = 0; i < n; i++) { x[i] = 0.5f * (i % 100); y[i] = 0.25f * (i % 33); }
    float *dx, *dy, *dz;
    cudaMalloc(&dx, n * sizeof(float)); cudaMalloc(&dy, n * sizeof(float)); cudaMalloc(&dz, n * sizeof(float));
    cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dy, y.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    add<<<(n + 255) / 256, 256>>>(dx, dy, dz, n);
    cudaMemcpy(z.data(), dz, n * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : z) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f\n", s, z[0], z[n - 1]);
    return 0;
}
