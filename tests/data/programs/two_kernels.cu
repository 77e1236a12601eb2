// Written for cudaops: the expensive kernel is not the first one.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__global__ void prepare(float* p, int count, float step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) p[i] = step * (i % 29);
}

__global__ void multiply(const float* P, const float* Q, float* R, int size) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size || j >= size) return;
    float total = 0;
    for (int k = 0; k < size; k++) total += P[i * size + k] * Q[k * size + j];
    R[i * size + j] = total;
}

int main(int argc, char** argv) {
    int size = argc > 1 ? atoi(argv[1]) : 72, count = size * size;
    float *p, *q, *r;
    cudaMalloc(&p, count * sizeof(float));
    cudaMalloc(&q, count * sizeof(float));
    cudaMalloc(&r, count * sizeof(float));
    prepare<<<(count + 255) / 256, 256>>>(p, count, 0.125f);
    prepare<<<(count + 255) / 256, 256>>>(q, count, 0.0625f);
    dim3 b(8, 8), g((size + 7) / 8, (size + 7) / 8);
    multiply<<<g, b>>>(p, q, r, size);
    std::vector<float> h(count);
    cudaMemcpy(h.data(), r, count * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : h) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f\n", s, h[0], h[count - 1]);
    return 0;
}
