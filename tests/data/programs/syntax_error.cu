// Written for cudaops: line 7 misses a semicolon.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void twice(float* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = p[i]
    if (i < n) p[i] = 2 * v;
}

int main() {
    float* p;
    cudaMalloc(&p, 64 * sizeof(float));
    twice<<<1, 64>>>(p, 64);
    return 0;
}
