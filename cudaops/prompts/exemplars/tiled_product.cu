// C = A * B, row-major, for mm(const float* A, const float* B, float* C, int M, int N, int K).
// A block computes BM x BN outputs from tiles in shared memory, a thread TM x TN of them in
// registers: each value read from shared memory is used TM or TN times. Edges are filled with zeros.
// @tune BM = 64, 32, 128
// @tune BN = 64, 32, 128
// @tune BK = 16, 8
// @launch mm_tiled grid=(ceil_div(N, BN), ceil_div(M, BM)) block=((BM/4) * (BN/4)) args=(A, B, C, M, N, K)
constexpr int TM = 4, TN = 4;

__global__ void __launch_bounds__((BM / TM) * (BN / TN))
mm_tiled(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
         int M, int N, int K) {
    constexpr int ACROSS = BN / TN, DOWN = BM / TM, THREADS = ACROSS * DOWN;
    __shared__ float a[BK][BM + 1], b[BK][BN];
    const int tid = threadIdx.x, tx = tid % ACROSS, ty = tid / ACROSS;
    const int first_row = blockIdx.y * BM, first_col = blockIdx.x * BN;
    float sum[TM][TN] = {};
    for (int from = 0; from < K; from += BK) {
        for (int i = tid; i < BM * BK; i += THREADS) {
            const int row = i / BK, k = i % BK;
            const bool inside = first_row + row < M && from + k < K;
            a[k][row] = inside ? A[(size_t)(first_row + row) * K + from + k] : 0.0f;
        }
        for (int i = tid; i < BK * BN; i += THREADS) {
            const int k = i / BN, col = i % BN;
            const bool inside = from + k < K && first_col + col < N;
            b[k][col] = inside ? B[(size_t)(from + k) * N + first_col + col] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float left[TM], right[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) left[i] = a[k][ty + i * DOWN];
            #pragma unroll
            for (int j = 0; j < TN; ++j) right[j] = b[k][tx + j * ACROSS];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            const int row = first_row + ty + i * DOWN, col = first_col + tx + j * ACROSS;
            if (row < M && col < N) C[(size_t)row * N + col] = sum[i][j];
        }
}
