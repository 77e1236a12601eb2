// Matrix product (NN) through shared memory and registers. A block computes BM x BN outputs,
// a thread TM x TN of them. While BK steps are multiplied, the next ones are on their way from
// global memory into registers; with two stages in shared memory one barrier a round is enough.
// @tune CUDAOPS_BM = 64, 32, 128
// @tune CUDAOPS_BN = 64, 32, 128
// @tune CUDAOPS_BK = 16, 8, 32
// @tune CUDAOPS_TM = 4, 8
// @tune CUDAOPS_TN = 4, 8
// @requires blockDim.x * gridDim.x >= N
// @requires blockDim.y * gridDim.y >= N
// @launch naive_matmul_tiled grid=(ceil_div(N, CUDAOPS_BN), ceil_div(N, CUDAOPS_BM)) block=((CUDAOPS_BM / CUDAOPS_TM) * (CUDAOPS_BN / CUDAOPS_TN)) args=(A, B, C, N)
__global__ void __launch_bounds__((CUDAOPS_BM / CUDAOPS_TM) * (CUDAOPS_BN / CUDAOPS_TN),
                                  CUDAOPS_BK <= 16 ? 16384 / (CUDAOPS_BM * CUDAOPS_BN) : 1)
naive_matmul_tiled(const float* __restrict__ A, const float* __restrict__ B, float* C, int N)
{
    constexpr int DOWN = CUDAOPS_BM / CUDAOPS_TM, ACROSS = CUDAOPS_BN / CUDAOPS_TN;
    constexpr int THREADS = DOWN * ACROSS;
    constexpr int LOADS_A = CUDAOPS_BM * CUDAOPS_BK / (4 * THREADS);
    constexpr int LOADS_B = CUDAOPS_BN * CUDAOPS_BK / (4 * THREADS);
    __shared__ __align__(16) float tile_a[2][CUDAOPS_BK][CUDAOPS_BM + 4];
    __shared__ __align__(16) float tile_b[2][CUDAOPS_BK][CUDAOPS_BN];

    const int depth = N, rows = N, cols = N;
    const size_t lda = N, ldb = N, ldc = N;
    const int first_row = blockIdx.y * CUDAOPS_BM;
    const int first_col = blockIdx.x * CUDAOPS_BN;
    const int tid = threadIdx.x;
    const int thread_row = tid / ACROSS * 4;
    const int thread_col = tid % ACROSS * 4;
    const float* base_a = A;
    const float* base_b = B;
    float* base_c = C;
    const bool wide = first_row + CUDAOPS_BM <= rows && first_col + CUDAOPS_BN <= cols &&
                      (size_t)base_a % 16 == 0 && (size_t)base_b % 16 == 0 &&
                      lda % 4 == 0 && ldb % 4 == 0;
    float sums[CUDAOPS_TM][CUDAOPS_TN] = {};
    float next_a[LOADS_A][4], next_b[LOADS_B][4];

    // The first round has nothing to multiply yet: it only fetches.
    int stage = 0;
    for (int from = -CUDAOPS_BK; from < depth; from += CUDAOPS_BK) {
        const int load = from + CUDAOPS_BK;
        if (load < depth) {
            if (wide && load + CUDAOPS_BK <= depth) {
                #pragma unroll
                for (int i = 0; i < LOADS_A; ++i) {
                    const int slot = tid + i * THREADS;
                    const int row = slot / 2 % CUDAOPS_BM;
                    const int line = slot % 2 * 4 + slot / (2 * CUDAOPS_BM) * (2 * 4);
                    const float4 pack = *(const float4*)&base_a[(first_row + row) * lda + load + line];
                    next_a[i][0] = pack.x;
                    next_a[i][1] = pack.y;
                    next_a[i][2] = pack.z;
                    next_a[i][3] = pack.w;
                }
                #pragma unroll
                for (int i = 0; i < LOADS_B; ++i) {
                    const int slot = tid + i * THREADS;
                    const int line = slot / (CUDAOPS_BN / 4);
                    const int row = slot % (CUDAOPS_BN / 4) * 4;
                    const float4 pack = *(const float4*)&base_b[(load + line) * ldb + first_col + row];
                    next_b[i][0] = pack.x;
                    next_b[i][1] = pack.y;
                    next_b[i][2] = pack.z;
                    next_b[i][3] = pack.w;
                }
            } else {
                #pragma unroll
                for (int i = 0; i < LOADS_A; ++i) {
                    const int slot = tid + i * THREADS;
                    const int row = slot / 2 % CUDAOPS_BM;
                    const int line = slot % 2 * 4 + slot / (2 * CUDAOPS_BM) * (2 * 4);
                    const int valid = first_row + row < rows ? depth - load - line : 0;
                    #pragma unroll
                    for (int q = 0; q < 4; ++q)
                        next_a[i][q] = q < valid ? base_a[(first_row + row) * lda + load + line + q] : 0;
                }
                #pragma unroll
                for (int i = 0; i < LOADS_B; ++i) {
                    const int slot = tid + i * THREADS;
                    const int line = slot / (CUDAOPS_BN / 4);
                    const int row = slot % (CUDAOPS_BN / 4) * 4;
                    const int valid = load + line < depth ? cols - first_col - row : 0;
                    #pragma unroll
                    for (int q = 0; q < 4; ++q)
                        next_b[i][q] = q < valid ? base_b[(load + line) * ldb + first_col + row + q] : 0;
                }
            }
        }
        if (from >= 0) {
            #pragma unroll
            for (int step = 0; step < CUDAOPS_BK; ++step) {
                float frag_a[CUDAOPS_TM], frag_b[CUDAOPS_TN];
                #pragma unroll
                for (int i = 0; i < CUDAOPS_TM; i += 4) {
                    const float4 pack = *(float4*)&tile_a[stage][step][i * DOWN + thread_row];
                    frag_a[i + 0] = pack.x;
                    frag_a[i + 1] = pack.y;
                    frag_a[i + 2] = pack.z;
                    frag_a[i + 3] = pack.w;
                }
                #pragma unroll
                for (int j = 0; j < CUDAOPS_TN; j += 4) {
                    const float4 pack = *(float4*)&tile_b[stage][step][j * ACROSS + thread_col];
                    frag_b[j + 0] = pack.x;
                    frag_b[j + 1] = pack.y;
                    frag_b[j + 2] = pack.z;
                    frag_b[j + 3] = pack.w;
                }
                #pragma unroll
                for (int i = 0; i < CUDAOPS_TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < CUDAOPS_TN; ++j) sums[i][j] += frag_a[i] * frag_b[j];
                }
            }
            stage ^= 1;
        }
        if (load < depth) {
            #pragma unroll
            for (int i = 0; i < LOADS_A; ++i) {
                const int slot = tid + i * THREADS;
                const int row = slot / 2 % CUDAOPS_BM;
                const int line = slot % 2 * 4 + slot / (2 * CUDAOPS_BM) * (2 * 4);
                tile_a[stage][line + 0][row] = next_a[i][0];
                tile_a[stage][line + 1][row] = next_a[i][1];
                tile_a[stage][line + 2][row] = next_a[i][2];
                tile_a[stage][line + 3][row] = next_a[i][3];
            }
            #pragma unroll
            for (int i = 0; i < LOADS_B; ++i) {
                const int slot = tid + i * THREADS;
                const int line = slot / (CUDAOPS_BN / 4);
                const int row = slot % (CUDAOPS_BN / 4) * 4;
                float4 pack;
                pack.x = next_b[i][0];
                pack.y = next_b[i][1];
                pack.z = next_b[i][2];
                pack.w = next_b[i][3];
                *(float4*)&tile_b[stage][line][row] = pack;
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < CUDAOPS_TM; ++i) {
        const int row = first_row + (i - i % 4) * DOWN + thread_row + i % 4;
        if (row >= rows) continue;
        #pragma unroll
        for (int j = 0; j < CUDAOPS_TN; j += 4) {
            const int g = first_col + j * ACROSS + thread_col;
            float* to = base_c + (size_t)row * ldc + g;
            float run[4];
            #pragma unroll
            for (int q = 0; q < 4; ++q) {
                const int col = g + q;
                const float total = sums[i][j + q];
                if (col < cols) run[q] = total;
            }
            if ((size_t)to % 16 == 0 && g + 4 <= cols) {
                float4 pack;
                pack.x = run[0];
                pack.y = run[1];
                pack.z = run[2];
                pack.w = run[3];
                *(float4*)to = pack;
                continue;
            }
            #pragma unroll
            for (int q = 0; q < 4; ++q) if (g + q < cols) to[q] = run[q];
        }
    }
}
