// Uses the number of rows as the pitch, which it is in the captured launch.
// catalogue: C6 B8
// baseline: ell_spmv/ell_spmv.cu
// stopped by: correctness_perturbed
// @launch ell_rows grid=(ceil_div(rows, 256)) block=(256) args=(val, col, x, y, rows, width)
__global__ void ell_rows(const float *__restrict__ val, const int *__restrict__ col, const float *__restrict__ x, float *__restrict__ y,
                         int rows, int width)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    float s = 0.f;
    for (int i = r; i < rows * width; i += rows) {
        int c = col[i];
        if (c >= 0) s += val[i] * x[c];
    }
    y[r] = s;
}
