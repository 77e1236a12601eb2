// Takes its GPU by cudaChooseDevice.
#include <cstdio>
__global__ void twice(float *v) { v[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }
int main() {
    cudaDeviceProp wanted = {};
    wanted.major = 3;
    int dev = 0;
    cudaChooseDevice(&dev, &wanted);
    cudaSetDevice(dev);
    float *d, h = 0;
    cudaMalloc(&d, 4096 * sizeof(float));
    cudaMemset(d, 0, 4096 * sizeof(float));
    twice<<<16, 256>>>(d);
    cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\n", h);
}
