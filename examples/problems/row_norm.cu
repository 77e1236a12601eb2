// RMS norm in two kernels: one thread sums a row, then one thread scales an element.
//
// @scratch scale bytes=4*x_size0
// @launch row_scale grid=(ceil_div(x_size0, 64)) block=(64) args=(x, scale, x_size0, features, eps)
// @launch scaled grid=(ceil_div(x_size, 256)) block=(256) args=(x, weight, scale, out, x_size, features)

__global__ void row_scale(const float* x, float* scale, int rows, int features, float eps) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < features; ++i) sum += x[row * features + i] * x[row * features + i];
    scale[row] = rsqrtf(sum / features + eps);
}

__global__ void scaled(const float* x, const float* weight, const float* scale, float* out, int n,
                       int features) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = weight[i % features] * x[i] * scale[i / features];
}
