// Pi by throwing darts; every thread has its own linear congruential generator. Integers only.
#include <cstdio>
#include <cuda_runtime.h>

typedef unsigned long long u64;

__device__ inline unsigned scramble(unsigned v)
{
    v ^= v >> 16; v *= 0x7feb352du;
    v ^= v >> 15; v *= 0x846ca68bu;
    return v ^ (v >> 16);
}

__global__ void throw_darts(unsigned seed, int per_thread, u64* inside)
{
    unsigned state = scramble(seed + blockIdx.x * blockDim.x + threadIdx.x);
    unsigned hits = 0;
    for (int k = 0; k < per_thread; ++k) {
        state = state * 1664525u + 1013904223u;
        const u64 x = state >> 16;
        state = state * 1664525u + 1013904223u;
        const u64 y = state >> 16;
        if (x * x + y * y < 4294836225ull) ++hits;
    }
    atomicAdd(inside, (u64)hits);
}

int main()
{
    u64 *d, h = 0;
    cudaMalloc(&d, sizeof(u64));
    cudaMemset(d, 0, sizeof(u64));
    throw_darts<<<40, 96>>>(20240607u, 100, d);
    cudaMemcpy(&h, d, sizeof(u64), cudaMemcpyDeviceToHost);
    printf("hits %llu pi %.6f\n", h, 4.0 * h / (40.0 * 96 * 100));
    return 0;
}
