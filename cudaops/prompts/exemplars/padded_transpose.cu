// out = transpose of in, for flip(const float* in, float* out, int width, int height), in being
// height x width. A tile goes through shared memory, so that both sides touch whole rows; the extra
// column puts the elements of a tile's column into different banks.
// @tune ROWS = 8, 4, 16
// @launch flip_tiles grid=(ceil_div(width, 32), ceil_div(height, 32)) block=(32, ROWS) args=(in, out, width, height)
__global__ void __launch_bounds__(32 * ROWS)
flip_tiles(const float* __restrict__ in, float* __restrict__ out, int width, int height) {
    __shared__ float tile[32][32 + 1];
    const int left = blockIdx.x * 32, top = blockIdx.y * 32;
    #pragma unroll
    for (int r = threadIdx.y; r < 32; r += ROWS) {
        const int x = left + threadIdx.x, y = top + r;
        if (x < width && y < height) tile[r][threadIdx.x] = in[(size_t)y * width + x];
    }
    __syncthreads();
    #pragma unroll
    for (int r = threadIdx.y; r < 32; r += ROWS) {
        const int x = top + threadIdx.x, y = left + r;
        if (x < height && y < width) out[(size_t)y * height + x] = tile[threadIdx.x][r];
    }
}
