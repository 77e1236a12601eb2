// A sum of all blocks by the last one to arrive: releases, acquires and a spin loop by inline PTX.
#include <cstdio>
#include <vector>

__device__ __forceinline__ int load_acquire(const int *p) {
    int v;
    asm volatile("ld.global.acquire.gpu.s32 %0, [%1];\n" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void red_release(int *p, int v) {
    asm volatile("fence.acq_rel.gpu;\n");
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;\n" : : "l"(p), "r"(v) : "memory");
}

__global__ void total(const float *a, float *partial, int *arrived, float *out, int n) {
    __shared__ float part[128];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) sum += a[i];
    unsigned at = __cvta_generic_to_shared(part + t);
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sum) : "memory");
    asm volatile("bar.sync 0;" ::: "memory");
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = part[0];
        red_release(arrived, 1);
    }
    if (blockIdx.x != gridDim.x - 1 || t != 0) return;
    while (load_acquire(arrived) != (int)gridDim.x) { }
    float all = 0;
    for (int i = 0; i < (int)gridDim.x; ++i) {
        float one;
        asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(one) : "l"(partial + i));
        all += one;
    }
    *out = all;
}

int main() {
    const int n = 1 << 16;
    std::vector<float> h(n, 0.25f);
    float *a, *partial, *out, found;
    int *arrived;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&partial, 16 * sizeof(float));
    cudaMalloc(&arrived, sizeof(int));
    cudaMalloc(&out, sizeof(float));
    cudaMemset(arrived, 0, sizeof(int));
    cudaMemcpy(a, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    total<<<16, 128>>>(a, partial, arrived, out, n);
    cudaMemcpy(&found, out, sizeof found, cudaMemcpyDeviceToHost);
    printf("%g\n", found);
    return found != n * 0.25f;
}
