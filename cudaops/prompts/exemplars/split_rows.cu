// y = A * x, A of rows x cols row-major, for gemv(const float* A, const float* x, float* y, int rows,
// int cols), which has a thread a row: too few threads, and each walks along a row of its own. Here a
// row is split over SPLIT blocks, whose warps read it side by side with two sums each; a second
// launch adds the parts.
// @tune SPLIT = 4, 1, 8
// @tune WARPS = 4, 8, 2
// @scratch parts bytes=4*rows*SPLIT
// @launch row_parts grid=(ceil_div(rows, WARPS), SPLIT) block=(32*WARPS) args=(A, x, parts, rows, cols)
// @launch add_parts grid=(ceil_div(rows, 256)) block=(256) args=(parts, y, rows)
__global__ void __launch_bounds__(32 * WARPS)
row_parts(const float* __restrict__ A, const float* __restrict__ x, float* parts, int rows, int cols) {
    const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;  // the whole warp leaves: the shuffles below lack nobody
    const int share = (cols + SPLIT - 1) / SPLIT;
    const int from = blockIdx.y * share, end = min(from + share, cols);
    const float* a = A + (size_t)row * cols;
    float even = 0.0f, odd = 0.0f;
    int k = from + lane;
    for (; k + 32 < end; k += 64) {
        even += a[k] * x[k];
        odd += a[k + 32] * x[k + 32];
    }
    if (k < end) even += a[k] * x[k];
    even += odd;
    for (int step = 16; step > 0; step /= 2) even += __shfl_down_sync(0xffffffffu, even, step);
    if (lane == 0) parts[(size_t)blockIdx.y * rows + row] = even;
}

__global__ void add_parts(const float* __restrict__ parts, float* __restrict__ y, int rows) {
    const int row = blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int s = 0; s < SPLIT; ++s) sum += parts[(size_t)s * rows + row];
    y[row] = sum;
}
