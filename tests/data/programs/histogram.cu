// Written for cudaops: integer atomics on shared and global memory.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

constexpr int BINS = 64;

__global__ void count(const unsigned char* __restrict__ pixels, unsigned int* bins, int n) {
    __shared__ unsigned int local[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(&local[pixels[i] % BINS], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) atomicAdd(bins + b, local[b]);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 20000;
    std::vector<unsigned char> h(n);
    for (int i = 0; i < n; i++) h[i] = (unsigned char)((i * 2654435761u) >> 24);
    unsigned char* pixels;
    unsigned int *bins, out[BINS];
    cudaMalloc(&pixels, n);
    cudaMalloc(&bins, sizeof(out));
    cudaMemcpy(pixels, h.data(), n, cudaMemcpyHostToDevice);
    cudaMemset(bins, 0, sizeof(out));
    count<<<6, 96>>>(pixels, bins, n);
    cudaMemcpy(out, bins, sizeof(out), cudaMemcpyDeviceToHost);
    unsigned long long s = 0;
    for (int b = 0; b < BINS; b++) s += (unsigned long long)out[b] * (b + 1);
    printf("checksum %llu\ncorners %u %u\n", s, out[0], out[BINS - 1]);
    return 0;
}
