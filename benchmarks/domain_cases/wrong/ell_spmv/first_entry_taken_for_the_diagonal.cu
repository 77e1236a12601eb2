// Takes the first entry of a row for its diagonal one and never reads its column, as the captured matrix is built so.
// catalogue: C7 B8
// baseline: ell_spmv/ell_spmv.cu
// stopped by: correctness_perturbed
// @requires width > 0
// @launch ell_diag grid=(ceil_div(rows, 256)) block=(256) args=(val, col, x, y, rows, width, pitch)
__global__ void ell_diag(const float *__restrict__ val, const int *__restrict__ col, const float *__restrict__ x, float *__restrict__ y,
                         int rows, int width, int pitch)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    float s = val[r] * x[r];
    for (int k = 1; k < width; ++k) {
        int c = col[k * pitch + r];
        if (c >= 0) s += val[k * pitch + r] * x[c];
    }
    y[r] = s;
}
