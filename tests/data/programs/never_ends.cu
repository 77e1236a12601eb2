// Written for cudaops: a kernel that waits for a flag that nobody sets.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void wait(volatile int* flag) {
    while (*flag == 0) {
    }
    *flag = 2;
}

int main() {
    int* flag;
    cudaMalloc(&flag, sizeof(int));
    cudaMemset(flag, 0, sizeof(int));
    wait<<<1, 1>>>(flag);
    cudaDeviceSynchronize();
    printf("checksum 0\n");
    return 0;
}
