// Written for cudaops: __global__ stands in this comment and in a declaration only.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void elsewhere(float* p);

int main() {
    printf("__global__ void k() {}\n");
    return 0;
}
