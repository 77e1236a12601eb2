// Written for cudaops: the guard is off by one block; line 9 writes past the end.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void ramp(float* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n + 64) {
        float v = 0.5f * i;
        p[i] = v;
    }
}

int main() {
    const int n = 1000;
    float* p;
    cudaMalloc(&p, n * sizeof(float));
    ramp<<<(n + 63) / 64 + 1, 64>>>(p, n);
    float last = 0;
    cudaMemcpy(&last, p + n - 1, sizeof(float), cudaMemcpyDeviceToHost);
    printf("checksum %.6f\n", last);
    return 0;
}
