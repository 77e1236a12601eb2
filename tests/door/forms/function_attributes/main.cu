// CUDA's and gcc's words about functions, in both spellings; own.h includes what gcc's library
// marks `__attribute__((__noinline__))`, behind CUDA's own headers.
#include <cstdio>
#include <cuda_runtime.h>
#include "own.h"
__attribute__((__noinline__)) __device__ float plus_one(float x) { return x + 1; }
__attribute__((noinline)) __device__ float plus_two(float x) { return x + 2; }
[[gnu::noinline]] __device__ float plus_three(float x) { return x + 3; }
static __noinline__ __device__ float plus_four(float x) { return x + 4; }
__attribute__((always_inline)) inline __device__ float plus_five(float x) { return x + 5; }
__device__ __inline_hint__ float plus_six(float x) { return x + 6; }
__device__ __nv_pure__ float plus_seven(float x) { return x + 7; }
__device__ __forceinline__ float first(const float *__restrict__ p) { return *p; }
template <class T> __attribute__((__noinline__)) __device__ T twice(T x) { return 2 * x; }
struct __align__(16) Weights {
    float of[4];
    __attribute__((__noinline__)) __device__ float at(int i) const { return of[i & 3]; }
};
__global__ void __launch_bounds__(64, 2) __local_maxnreg__(40) bounded(float *v) { v[threadIdx.x] += 1; }
__global__ void __maxnreg__(64) limited(float *v) { v[threadIdx.x] += 1; }
__global__ void __launch_bounds__(64) words(const __grid_constant__ Weights w, const float *a, float *s) {
    int i = threadIdx.x;
    __builtin_assume(i < 64);
    if (__builtin_expect(i > 63, 0)) __builtin_unreachable();
#if __CUDA_ARCH_HAS_FEATURE__(SM90_ALL)
    i = 0;
#endif
    s[i] = plus_one(plus_two(plus_three(plus_four(plus_five(plus_six(plus_seven(first(a + i)))))))) + twice(w.at(i));
}

int main() {
    auto host = std::make_shared<Weights>();
    for (float &w : host->of) w = 0.5f;
    float *a, *s, h[64];
    for (int i = 0; i < 64; ++i) h[i] = i;
    cudaMalloc(&a, sizeof h);
    cudaMalloc(&s, sizeof h);
    cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
    words<<<1, 64>>>(*host, a, s);
    bounded<<<1, 64>>>(s);
    limited<<<1, 64>>>(s);
    cudaMemcpy(h, s, sizeof h, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; ++i)
        if (h[i] != i + 31) return 1;
    puts("right");
    return 0;
}
