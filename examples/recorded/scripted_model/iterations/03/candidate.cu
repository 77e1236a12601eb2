// @requires N % 32 == 0
// @launch wide_tiled_matmul grid=(N/32, N/32) block=(32, 8) args=(A, B, C, N)

#define TILE 32
#define COLUMNS 4

__global__ void wide_tiled_matmul(const float* A, const float* B, float* C, int N) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int row = blockIdx.y * TILE + x;
    const int col = blockIdx.x * TILE + y;
    float sum[COLUMNS] = {};
    for (int start = 0; start < N; start += TILE) {
        for (int c = 0; c < COLUMNS; ++c) {
            tile_a[x][y + 8 * c] = A[row * N + start + y + 8 * c];
            tile_b[x][y + 8 * c] = B[(start + x) * N + col + 8 * c];
        }
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            const float a = tile_a[x][k];
            for (int c = 0; c < COLUMNS; ++c) sum[c] += a * tile_b[k][y + 8 * c];
        }
        __syncthreads();
    }
    for (int c = 0; c < COLUMNS; ++c) C[row * N + col + 8 * c] = sum[c];
}
