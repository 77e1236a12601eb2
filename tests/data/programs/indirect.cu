// Written for cudaops: overloads, a function pointer, partly deduced templates, shared memory that is
// declared outside of its kernel, a launch that spans lines, and code that never compiles.
#include <cstdio>
#include <cuda_runtime.h>

#define KERNEL static __global__ void
extern __shared__ int scratch[];

KERNEL put(int* p, int v) { p[threadIdx.x] = v; }
KERNEL put(int* p, float v) { p[threadIdx.x] = (int)(v * 2); }

template <int STEP, typename T>
__global__ void stride(T* p, int n) {
    for (int i = threadIdx.x; i < n; i += STEP) p[i] += T(STEP);
}

__global__ void rotate(int* p) {
    scratch[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = scratch[(threadIdx.x + 1) % blockDim.x];
}

#if 0
__global__ void dead(int* p) { dead<<<1, 1>>>(p);
#endif

int main() {
    const char* text = "rotate<<<1, 1>>>(p)";  // rotate<<<2, 2>>>(p)
    int *p, h[64];
    cudaMalloc(&p, sizeof(h));
    put<<<1, 64>>>(p, 3);
    put<<<1, 32>>>(p, 4.5f);
    stride<32><<<1, 32>>>(p, 64);
    rotate<<<1,  // one block
             64, 64 * sizeof(int)
             >>>
        (p);
    void (*chosen)(int*) = rotate;
    chosen<<<1, 64, 64 * sizeof(int)>>>(p);
    cudaMemcpy(h, p, sizeof(h), cudaMemcpyDeviceToHost);
    long long s = 0;
    for (int i = 0; i < 64; i++) s += (long long)h[i] * (i + 1);
    printf("checksum %lld\ncorners %d %d\n%s\n", s, h[0], h[63], text);
    return 0;
}
