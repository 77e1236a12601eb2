// Pairs in half2 arithmetic; __hgt2_mask selects bits (no multiplication by a mask, which an infinity would not survive); an odd last element.
// baseline: half_leaky/half_leaky.cu
// @requires n > 0 && aligned(x, 4) && aligned(y, 4) && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 512)) block=(256) args=(x, y, scale, shift, slope, n)
__global__ void fast(const __half* x, __half* y, float scale, float shift, float slope, int n)
{
    const int i = (blockIdx.x * 256 + threadIdx.x) * 2;
    if (i >= n) return;
    const __half2 a = __float2half2_rn(scale), b = __float2half2_rn(shift), c = __float2half2_rn(slope);
    const bool pair = i + 1 < n;
    const __half2 in = pair ? *reinterpret_cast<const __half2*>(x + i) : __halves2half2(x[i], x[i]);
    const __half2 v = __hfma2(in, a, b), w = __hmul2(v, c);
    const unsigned up = __hgt2_mask(v, __float2half2_rn(0.0f));
    const unsigned bits = (*reinterpret_cast<const unsigned*>(&v) & up) | (*reinterpret_cast<const unsigned*>(&w) & ~up);
    const __half2 out = *reinterpret_cast<const __half2*>(&bits);
    if (pair) *reinterpret_cast<__half2*>(y + i) = out;
    else y[i] = __low2half(out);
}
