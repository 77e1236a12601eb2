// Converts to int, adds and clamps then: with a zero point above 0 values beyond 2^31 run over and land at the lower limit; captured ones are within 127 steps.
// catalogue: C7 C2
// baseline: quantize_rows/quantize_rows.cu
// stopped by: correctness_perturbed
// @launch quantize_int grid=(ceil_div(cols, 128), rows) block=(128) args=(x, scale, q, rows, cols, spec)
__global__ void quantize_int(const float *__restrict__ x, const float *__restrict__ scale, signed char *__restrict__ q, int rows, int cols,
                             QuantSpec spec)
{
    int c = blockIdx.x * 128 + threadIdx.x, r = blockIdx.y;
    if (c >= cols) return;
    float s = scale[r];
    int v = s > 0.f ? __float2int_rn(x[r * cols + c] / s) : 0;
    v = (int)((unsigned)v + (unsigned)spec.zero);
    q[r * cols + c] = (signed char)min(max(v, spec.lo), spec.hi);
}
