// Ends a row at its first padding; in the captured matrix padding stands behind the entries.
// catalogue: C7
// baseline: ell_spmv/ell_spmv.cu
// stopped by: correctness_perturbed
// @launch ell_break grid=(ceil_div(rows, 256)) block=(256) args=(val, col, x, y, rows, width, pitch)
__global__ void ell_break(const float *__restrict__ val, const int *__restrict__ col, const float *__restrict__ x, float *__restrict__ y,
                          int rows, int width, int pitch)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    const float *v = val + r;
    const int *p = col + r;
    float s = 0.f;
    for (int k = 0; k < width; ++k, v += pitch, p += pitch) {
        int c = *p;
        if (c < 0) break;
        s += *v * x[c];
    }
    y[r] = s;
}
