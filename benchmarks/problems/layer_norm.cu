// Layer norm over channels, one thread a pixel: mean, then variance, then the elements.
// @launch layer_norm grid=(ceil_div(x_size0 * x_size2 * x_size3, 128)) block=(128) args=(x, weight, bias, out, x_size0, channels, x_size2 * x_size3, eps)

__global__ void layer_norm(const float* x, const float* weight, const float* bias, float* y,
                           int batch, int channels, int pixels, float eps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * pixels) return;
    int first = i / pixels * channels * pixels + i % pixels;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) sum += x[first + c * pixels];
    float mean = sum / channels;
    float squares = 0.0f;
    for (int c = 0; c < channels; ++c) {
        float d = x[first + c * pixels] - mean;
        squares += d * d;
    }
    float scale = rsqrtf(squares / channels + eps);
    for (int c = 0; c < channels; ++c) {
        y[first + c * pixels] = (x[first + c * pixels] - mean) * scale * weight[c] + bias[c];
    }
}
