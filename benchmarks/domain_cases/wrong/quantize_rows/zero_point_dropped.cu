// Symmetric quantisation: the zero point and the limits of the structure are not read, 0 and -128..127 as captured.
// catalogue: B8
// baseline: quantize_rows/quantize_rows.cu
// stopped by: correctness_perturbed
// @launch quantize_sym grid=(ceil_div(cols, 128), rows) block=(128) args=(x, scale, q, rows, cols)
__global__ void quantize_sym(const float *__restrict__ x, const float *__restrict__ scale, signed char *__restrict__ q, int rows, int cols)
{
    int c = blockIdx.x * 128 + threadIdx.x, r = blockIdx.y;
    if (c >= cols) return;
    float s = scale[r];
    float v = s > 0.f ? rintf(x[r * cols + c] / s) : 0.f;
    q[r * cols + c] = (signed char)(int)fminf(fmaxf(v, -128.f), 127.f);
}
