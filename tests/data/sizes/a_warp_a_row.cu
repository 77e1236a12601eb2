// @launch row_sums_warp grid=((rows + 7) / 8) block=(256) args=(x, y, rows, columns)
__global__ void row_sums_warp(const float* x, float* y, int rows, int columns) {
  int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  float sum = 0;
  for (int c = lane; c < columns; c += 32) sum += x[(long)r * columns + c];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (lane == 0) y[r] = sum;
}
