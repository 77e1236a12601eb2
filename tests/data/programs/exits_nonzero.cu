// Written for cudaops: runs, then reports a failure of its own.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void mark(int* p) { p[threadIdx.x] = threadIdx.x; }

int main() {
    int* p;
    cudaMalloc(&p, 32 * sizeof(int));
    mark<<<1, 32>>>(p);
    cudaDeviceSynchronize();
    printf("checksum 0\n");
    fprintf(stderr, "self test failed\n");
    return 3;
}
