// Group norm in three kernels: sums of each channel, mean and deviation of each group, the elements.
// @scratch sums bytes=4*x_size0*channels
// @scratch squares bytes=4*x_size0*channels
// @scratch means bytes=4*x_size0*groups
// @scratch scales bytes=4*x_size0*groups
// @launch channel_sums grid=(ceil_div(x_size0*channels, 64)) block=(64) args=(x, sums, squares, x_size0*channels, x_size2*x_size3)
// @launch group_moments grid=(ceil_div(x_size0*groups, 64)) block=(64) args=(sums, squares, means, scales, x_size0*groups, channels/groups, x_size2*x_size3, eps)
// @launch normalize grid=(ceil_div(x_size, 256)) block=(256) args=(x, means, scales, norm_weight, norm_bias, out, x_size, channels, channels/groups, x_size2*x_size3)

__global__ void channel_sums(const float* x, float* sums, float* squares, int planes, int pixels) {
    int plane = blockIdx.x * blockDim.x + threadIdx.x;
    if (plane >= planes) return;
    float sum = 0.0f;
    float square = 0.0f;
    for (int i = 0; i < pixels; ++i) {
        float value = x[plane * pixels + i];
        sum += value;
        square += value * value;
    }
    sums[plane] = sum;
    squares[plane] = square;
}

__global__ void group_moments(const float* sums, const float* squares, float* means, float* scales,
                              int groups, int group_channels, int pixels, float eps) {
    int group = blockIdx.x * blockDim.x + threadIdx.x;
    if (group >= groups) return;
    float sum = 0.0f;
    float square = 0.0f;
    for (int c = 0; c < group_channels; ++c) {
        sum += sums[group * group_channels + c];
        square += squares[group * group_channels + c];
    }
    float mean = sum / (group_channels * pixels);
    means[group] = mean;
    scales[group] = rsqrtf(square / (group_channels * pixels) - mean * mean + eps);
}

__global__ void normalize(const float* x, const float* means, const float* scales,
                          const float* weight, const float* bias, float* y, int n, int channels,
                          int group_channels, int pixels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int plane = i / pixels;
    int group = plane / group_channels;
    int channel = plane % channels;
    y[i] = (x[i] - means[group]) * scales[group] * weight[channel] + bias[channel];
}
