// Log-softmax, one thread a row.
// @launch log_softmax grid=(ceil_div(x_size0, 64)) block=(64) args=(x, out, x_size0, x_size1)

__global__ void log_softmax(const float* x, float* y, int rows, int classes) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float top = x[row * classes];
    for (int i = 1; i < classes; ++i) top = fmaxf(top, x[row * classes + i]);
    float sum = 0.0f;
    for (int i = 0; i < classes; ++i) sum += expf(x[row * classes + i] - top);
    float shift = top + logf(sum);
    for (int i = 0; i < classes; ++i) y[row * classes + i] = x[row * classes + i] - shift;
}
