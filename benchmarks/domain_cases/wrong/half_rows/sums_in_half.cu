// Sums in half precision, two at a time: exact for the captured quarters, far less exact (and infinite early) for others.
// catalogue: C4
// baseline: half_rows/half_rows.cu
// stopped by: correctness_perturbed
// @requires cols % 2 == 0 && aligned(a, 4) && aligned(weight, 4)
// @launch row_dot2 grid=(ceil_div(rows, 4)) block=(32, 4) args=(a, weight, residual, out, rows, cols, scale)
__global__ void row_dot2(const __half *__restrict__ a, const __half *__restrict__ weight, const __half *__restrict__ residual,
                         __half *__restrict__ out, int rows, int cols, float scale)
{
    int r = blockIdx.x * 4 + threadIdx.y;
    if (r >= rows) return;
    const __half2 *p = reinterpret_cast<const __half2 *>(a + r * cols), *w = reinterpret_cast<const __half2 *>(weight);
    __half2 acc = __floats2half2_rn(0.f, 0.f);
    for (int c = threadIdx.x; c < cols / 2; c += 32) acc = __hfma2(p[c], w[c], acc);
    float s = __low2float(acc) + __high2float(acc);
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (threadIdx.x == 0) out[r] = __float2half(fminf(fmaxf(scale * s + __half2float(residual[r]), -65504.f), 65504.f));
}
