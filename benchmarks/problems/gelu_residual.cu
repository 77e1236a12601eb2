// y = residual + scale * gelu(x), each thread the pixels of one row of an image.
// @launch gelu_residual grid=(ceil_div(x_size0 * channels * x_size2, 128)) block=(128) args=(x, residual, scale, out, x_size0 * channels * x_size2, channels, x_size2, x_size3)

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

__global__ void gelu_residual(const float* x, const float* residual, const float* scale, float* y,
                              int rows, int channels, int height, int width) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int channel = row / height % channels;
    for (int col = 0; col < width; ++col) {
        int i = row * width + col;
        y[i] = residual[i] + scale[channel] * gelu(x[i]);
    }
}
