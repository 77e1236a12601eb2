// Cumulative sum along each row, one thread a row.
// @launch row_cumsum grid=(ceil_div(x_size0, 64)) block=(64) args=(x, out, x_size0, x_size1)

__global__ void row_cumsum(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < columns; ++i) {
        sum += x[row * columns + i];
        y[row * columns + i] = sum;
    }
}
