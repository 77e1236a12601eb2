// Divides by the scale without asking whether it is positive: a row of zeros (scale 0) gives NaN and a negative scale is used; captured scales are positive.
// catalogue: C7 C8
// baseline: quantize_rows/quantize_rows.cu
// stopped by: correctness_perturbed
// @launch quantize_bare grid=(ceil_div(cols, 128), rows) block=(128) args=(x, scale, q, rows, cols, spec)
__global__ void quantize_bare(const float *__restrict__ x, const float *__restrict__ scale, signed char *__restrict__ q, int rows, int cols,
                              QuantSpec spec)
{
    int c = blockIdx.x * 128 + threadIdx.x, r = blockIdx.y;
    if (c >= cols) return;
    float v = rintf(x[r * cols + c] / scale[r]) + spec.zero;
    q[r * cols + c] = (signed char)(int)fminf(fmaxf(v, (float)spec.lo), (float)spec.hi);
}
