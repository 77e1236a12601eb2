// One pass: sums of differences to the first row and of their squares in double, so nothing cancels; eight threads a column.
// baseline: column_moments/column_moments.cu
// @requires n_rows > 0 && n_cols > 0 && gridDim.x * blockDim.x >= n_cols && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n_cols, 32)) block=(32, 8) args=(data, mean, variance, n_rows, n_cols)
__global__ void fast(const float* __restrict__ data, float* __restrict__ mean, float* __restrict__ variance, int n_rows, int n_cols)
{
    __shared__ double first[8][33], second[8][33];
    const int col = blockIdx.x * 32 + threadIdx.x;
    double shift = 0.0, s1 = 0.0, s2 = 0.0;
    if (col < n_cols) {
        const float top = data[col];
        if (isfinite(top)) shift = top;                  // an infinite first row must not turn everything into inf - inf
        for (int r = threadIdx.y; r < n_rows; r += 8) {
            const double d = (double)data[r * n_cols + col] - shift;
            s1 += d;
            s2 = fma(d, d, s2);
        }
    }
    first[threadIdx.y][threadIdx.x] = s1;
    second[threadIdx.y][threadIdx.x] = s2;
    __syncthreads();
    if (threadIdx.y == 0 && col < n_cols) {
        for (int k = 1; k < 8; ++k) { s1 += first[k][threadIdx.x]; s2 += second[k][threadIdx.x]; }
        const double v = (s2 - s1 * s1 / n_rows) / n_rows;
        mean[col] = (float)(shift + s1 / n_rows);
        variance[col] = (float)(v < 0.0 ? 0.0 : v);      // NaN stays NaN
    }
}
