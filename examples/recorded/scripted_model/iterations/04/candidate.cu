// @tune DEPTH = 16, 8, 32
// @requires N % 64 == 0
// @launch register_tiled_matmul grid=(N/64, N/64) block=(16, 16) args=(A, B, C, N)

#define TILE 64
#define EACH 4

__global__ void register_tiled_matmul(const float* A, const float* B, float* C, int N) {
    __shared__ float tile_a[DEPTH][TILE + 4];
    __shared__ float tile_b[DEPTH][TILE];
    const int thread = threadIdx.y * 16 + threadIdx.x;
    const int first_row = blockIdx.y * TILE;
    const int first_col = blockIdx.x * TILE;
    float sum[EACH][EACH] = {};

    for (int start = 0; start < N; start += DEPTH) {
        for (int i = thread; i < TILE * DEPTH; i += 256) {
            tile_a[i % DEPTH][i / DEPTH] = A[(first_row + i / DEPTH) * N + start + i % DEPTH];
            tile_b[i / TILE][i % TILE] = B[(start + i / TILE) * N + first_col + i % TILE];
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; ++k) {
            float a[EACH], b[EACH];
            for (int r = 0; r < EACH; ++r) a[r] = tile_a[k][threadIdx.y * EACH + r];
            for (int c = 0; c < EACH; ++c) b[c] = tile_b[k][threadIdx.x + 16 * c];
            for (int r = 0; r < EACH; ++r)
                for (int c = 0; c < EACH; ++c) sum[r][c] += a[r] * b[c];
        }
        __syncthreads();
    }
    for (int r = 0; r < EACH; ++r) {
        const int row = first_row + threadIdx.y * EACH + r;
        for (int c = 0; c < EACH; ++c) C[row * N + first_col + threadIdx.x + 16 * c] = sum[r][c];
    }
}
