// Depthwise convolution with zeros around the image, one thread an element of the output.
// @launch depthwise grid=(ceil_div(x_size3, 32), ceil_div(x_size2, 8), x_size0 * channels) block=(32, 8) args=(x, conv_weight, conv_bias, out, channels, x_size2, x_size3, kernel_size)

__global__ void depthwise(const float* x, const float* weight, const float* bias, float* y,
                          int channels, int height, int width, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int plane = blockIdx.z;
    int channel = plane % channels;
    if (col >= width || row >= height) return;
    float sum = bias[channel];
    for (int dy = 0; dy < k; ++dy) {
        for (int dx = 0; dx < k; ++dx) {
            int r = row + dy - k / 2;
            int c = col + dx - k / 2;
            if (r >= 0 && r < height && c >= 0 && c < width) {
                sum += x[(plane * height + r) * width + c] * weight[(channel * k + dy) * k + dx];
            }
        }
    }
    y[(plane * height + row) * width + col] = sum;
}
