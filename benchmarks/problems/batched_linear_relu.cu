// y[b] = relu(x[b] weight[b] + bias[b]), one thread an element.
// @launch linear_relu grid=(ceil_div(out_features, 32), ceil_div(x_size1, 8), groups) block=(32, 8) args=(x, weight, bias, out, x_size1, in_features, out_features)

__global__ void linear_relu(const float* x, const float* weight, const float* bias, float* y,
                            int rows, int in_features, int out_features) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int b = blockIdx.z;
    if (row >= rows || col >= out_features) return;
    float sum = bias[b * out_features + col];
    for (int k = 0; k < in_features; ++k) {
        sum += x[(b * rows + row) * in_features + k] *
               weight[(b * in_features + k) * out_features + col];
    }
    y[(b * rows + row) * out_features + col] = sum > 0.0f ? sum : 0.0f;
}
