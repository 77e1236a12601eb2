// Rounds halves away from zero, with floorf(|v| + 0.5f); none of the captured quotients lies halfway.
// catalogue: C7
// baseline: quantize_rows/quantize_rows.cu
// stopped by: correctness_perturbed
// @launch quantize_away grid=(ceil_div(cols, 128), rows) block=(128) args=(x, scale, q, rows, cols, spec)
__global__ void quantize_away(const float *__restrict__ x, const float *__restrict__ scale, signed char *__restrict__ q, int rows, int cols,
                              QuantSpec spec)
{
    int c = blockIdx.x * 128 + threadIdx.x, r = blockIdx.y;
    if (c >= cols) return;
    float s = scale[r];
    float v = s > 0.f ? x[r * cols + c] / s : 0.f;
    v = copysignf(floorf(fabsf(v) + 0.5f), v) + spec.zero;
    q[r * cols + c] = (signed char)(int)fminf(fmaxf(v, (float)spec.lo), (float)spec.hi);
}
