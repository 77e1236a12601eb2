// @requires N % 16 == 0
// @launch tiled_matmul grid=(N/16, N/16) block=(16, 16) args=(A, B, C, N)

#define TILE 16

__global__ void tiled_matmul(const float* A, const float* B, float* C, int N) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y
    const int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < N; start += TILE) {
        tile_a[threadIdx.y][threadIdx.x] = A[row * N + start + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = B[(start + threadIdx.y) * N + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();
    }
    C[row * N + col] = sum;
}
