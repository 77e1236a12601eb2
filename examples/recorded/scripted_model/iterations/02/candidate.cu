// @requires N % 32 == 0
// @launch wide_tiled_matmul grid=(N/32, N/32) block=(32, 8) args=(A, B, C, N)

#define TILE 32
#define ROWS 4

__global__ void wide_tiled_matmul(const float* A, const float* B, float* C, int N) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE + 1];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + y;
    const int col = blockIdx.x * TILE + x;
    float sum[ROWS] = {};
    for (int start = 0; start < N; start += TILE) {
        for (int r = 0; r < ROWS; ++r) {
            tile_a[y + 8 * r][x] = A[(row + 8 * r) * N + start + x];
            tile_b[y + 8 * r][x] = B[(start + y + 8 * r) * N + col];
        }
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            const float b = tile_b[x][k];
            for (int r = 0; r < ROWS; ++r) sum[r] += tile_a[y + 8 * r][k] * b;
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r) C[(row + 8 * r) * N + col] = sum[r];
}
