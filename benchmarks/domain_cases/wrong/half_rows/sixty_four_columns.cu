// Each lane takes two columns and no more, without scale: both cols (64) and scale (1) are arguments.
// catalogue: B8 C6
// baseline: half_rows/half_rows.cu
// stopped by: correctness_perturbed
// @requires aligned(a, 4) && aligned(weight, 4)
// @launch row_dot64 grid=(ceil_div(rows, 8)) block=(32, 8) args=(a, weight, residual, out, rows)
__global__ void row_dot64(const __half *__restrict__ a, const __half *__restrict__ weight, const __half *__restrict__ residual,
                          __half *__restrict__ out, int rows)
{
    int r = blockIdx.x * 8 + threadIdx.y;
    if (r >= rows) return;
    float2 p = __half22float2(reinterpret_cast<const __half2 *>(a)[r * 32 + threadIdx.x]);
    float2 w = __half22float2(reinterpret_cast<const __half2 *>(weight)[threadIdx.x]);
    float s = p.x * w.x + p.y * w.y;
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (threadIdx.x == 0) out[r] = __float2half(fminf(fmaxf(s + __half2float(residual[r]), -65504.f), 65504.f));
}
