// Max pooling with stride 1, one thread a pixel.
// @launch max_pool grid=(ceil_div(x_size3, 16), ceil_div(x_size2, 16), x_size0 * x_size1) block=(16, 16) args=(x, out, x_size2, x_size3, kernel_size)

__global__ void max_pool(const float* x, float* y, int height, int width, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (col >= width || row >= height) return;
    const float* plane = x + blockIdx.z * height * width;
    float top = plane[row * width + col];
    for (int r = row - k / 2; r <= row + k / 2; ++r) {
        for (int c = col - k / 2; c <= col + k / 2; ++c) {
            if (r >= 0 && r < height && c >= 0 && c < width) top = fmaxf(top, plane[r * width + c]);
        }
    }
    y[(blockIdx.z * height + row) * width + col] = top;
}
