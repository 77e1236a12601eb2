// One thread a row, as a first version has it.
__global__ void softmax_kernel(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in = x + (long long)row * columns;
    float top = in[0];
    for (int c = 1; c < columns; ++c) top = fmaxf(top, in[c]);
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) sum += expf(in[c] - top);
    for (int c = 0; c < columns; ++c) y[(long long)row * columns + c] = expf(in[c] - top) / sum;
}

void softmax_rows(const float* x, float* y, int rows, int columns) {
    softmax_kernel<<<(rows + 127) / 128, 128>>>(x, y, rows, columns);
}
