// 3x3 convolution with zeros around the image, one thread an element of the output.
// @launch conv3x3 grid=(ceil_div(out_size, 256)) block=(256) args=(x, conv_weight, conv_bias, out, out_size0, in_channels, out_channels, out_size2, out_size3)

__global__ void conv3x3(const float* x, const float* weight, const float* bias, float* y, int batch,
                        int in_channels, int out_channels, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * out_channels * height * width) return;
    int col = i % width;
    int row = i / width % height;
    int oc = i / (width * height) % out_channels;
    int n = i / (width * height * out_channels);
    float sum = bias[oc];
    for (int ic = 0; ic < in_channels; ++ic) {
        for (int dy = 0; dy < 3; ++dy) {
            for (int dx = 0; dx < 3; ++dx) {
                int r = row + dy - 1;
                int c = col + dx - 1;
                if (r < 0 || r >= height || c < 0 || c >= width) continue;
                sum += x[((n * in_channels + ic) * height + r) * width + c] *
                       weight[((oc * in_channels + ic) * 3 + dy) * 3 + dx];
            }
        }
    }
    y[i] = sum;
}
