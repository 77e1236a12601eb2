// Softmax of each row, one thread a row.
// @launch softmax_rows grid=(ceil_div(rows, 32)) block=(32) args=(x, out, rows, cols)

__global__ void softmax_rows(const float* x, float* out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float top = x[row * cols];
    for (int i = 1; i < cols; ++i) top = fmaxf(top, x[row * cols + i]);
    float sum = 0.0f;
    for (int i = 0; i < cols; ++i) sum += expf(x[row * cols + i] - top);
    for (int i = 0; i < cols; ++i) out[row * cols + i] = expf(x[row * cols + i] - top) / sum;
}
