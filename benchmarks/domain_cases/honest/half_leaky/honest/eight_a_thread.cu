// Eight halves a thread in one 16-byte load and store, each pair by half2 arithmetic and two half comparisons; scalar tail.
// baseline: half_leaky/half_leaky.cu
// @requires n > 0 && aligned(x, 16) && aligned(y, 16) && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 1024)) block=(128) args=(x, y, scale, shift, slope, n)
__device__ __forceinline__ __half2 leaky2(__half2 x, __half2 a, __half2 b, __half2 c)
{
    const __half2 v = __hfma2(x, a, b), w = __hmul2(v, c);
    const __half zero = __float2half(0.0f);
    return __halves2half2(__low2half(v) > zero ? __low2half(v) : __low2half(w), __high2half(v) > zero ? __high2half(v) : __high2half(w));
}
union Eight { uint4 words; __half2 pair[4]; __device__ Eight() : words() {} };
__global__ void fast(const __half* x, __half* y, float scale, float shift, float slope, int n)
{
    const int i = (blockIdx.x * 128 + threadIdx.x) * 8;
    if (i >= n) return;
    const __half2 a = __float2half2_rn(scale), b = __float2half2_rn(shift), c = __float2half2_rn(slope);
    if (n - i >= 8) {
        Eight e;
        e.words = *reinterpret_cast<const uint4*>(x + i);
#pragma unroll
        for (int k = 0; k < 4; ++k) e.pair[k] = leaky2(e.pair[k], a, b, c);
        *reinterpret_cast<uint4*>(y + i) = e.words;
    } else {
        for (int k = i; k < n; ++k) y[k] = __low2half(leaky2(__half2half2(x[k]), a, b, c));
    }
}
