// Four lanes a row with sums in double, joined by shuffles of width four and rounded once.
// baseline: csr_spmv/csr_spmv.cu
// @requires num_rows > 0 && gridDim.x * blockDim.x >= num_rows && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(num_rows, 32)) block=(128) args=(num_rows, row_ptr, col_idx, vals, x, y, alpha, beta)
__global__ void fast(int num_rows, const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const float* __restrict__ vals,
                     const float* __restrict__ x, float* y, float alpha, float beta)
{
    const int row = blockIdx.x * 32 + (threadIdx.x >> 2), part = threadIdx.x & 3;
    double dot = 0.0;
    if (row < num_rows) {
        const int begin = row_ptr[row], end = row_ptr[row + 1];
        if (begin < end)
            for (int j = begin + part; j < end; j += 4) dot += (double)vals[j] * (double)x[col_idx[j]];
    }
    dot += __shfl_down_sync(0xffffffffu, dot, 2, 4);
    dot += __shfl_down_sync(0xffffffffu, dot, 1, 4);
    if (row < num_rows && part == 0) y[row] = fmaf(alpha, (float)dot, beta * y[row]);
}
