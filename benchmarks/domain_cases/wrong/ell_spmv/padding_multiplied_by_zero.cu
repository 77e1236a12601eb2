// Reads x[0] for padding and counts on a value of zero there, as the captured matrix has; padding may hold anything.
// catalogue: C7 B8
// baseline: ell_spmv/ell_spmv.cu
// stopped by: correctness_perturbed
// @launch ell_zero grid=(ceil_div(rows, 256)) block=(256) args=(val, col, x, y, rows, width, pitch)
__global__ void ell_zero(const float *__restrict__ val, const int *__restrict__ col, const float *__restrict__ x, float *__restrict__ y,
                         int rows, int width, int pitch)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    float s = 0.f;
#pragma unroll 4
    for (int k = 0; k < width; ++k) s += val[k * pitch + r] * x[max(col[k * pitch + r], 0)];
    y[r] = s;
}
