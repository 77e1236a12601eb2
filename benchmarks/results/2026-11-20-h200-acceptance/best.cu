// A 1024x1024 single-precision matrix product as one would first write it: one thread an output,
// every operand read from global memory. Prints a checksum and the four corners of C on stdout,
// and the mean kernel time by CUDA events as "KERNEL_MS: x" on stderr.
//
//   nvcc -O3 -arch=sm_86 naive_matmul.cu -o naive_matmul && ./naive_matmul

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

static void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
}

__global__ void naive_matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N || col >= N) return;

    float sum = 0.0f;
    for (int k = 0; k < N; ++k) {
        sum += A[row * N + k] * B[k * N + col];
    }
    C[row * N + col] = sum;
}
// ---- cudaops: shared-memory and register tiling (recipe:matmul, b9e8c08a51d1)
#pragma push_macro("CUDAOPS_BK")
#undef CUDAOPS_BK
#pragma push_macro("CUDAOPS_BM")
#undef CUDAOPS_BM
#pragma push_macro("CUDAOPS_BN")
#undef CUDAOPS_BN
#pragma push_macro("CUDAOPS_TM")
#undef CUDAOPS_TM
#pragma push_macro("CUDAOPS_TN")
#undef CUDAOPS_TN
#define CUDAOPS_BK 16
#define CUDAOPS_BM 128
#define CUDAOPS_BN 64
#define CUDAOPS_TM 8
#define CUDAOPS_TN 8
namespace cudaops_naive_matmul {
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
static inline bool cudaops_fits(const long long (&grid)[3], const long long (&block)[3],
                                long long smem) {
    const bool grid_fits = grid[0] >= 1 && grid[0] <= 2147483647LL && grid[1] >= 1 &&
                           grid[1] <= 65535 && grid[2] >= 1 && grid[2] <= 65535;
    const bool block_fits = block[0] >= 1 && block[0] <= 1024 && block[1] >= 1 &&
                            block[1] <= 1024 && block[2] >= 1 && block[2] <= 64 &&
                            block[0] * block[1] * block[2] <= 1024;
    return grid_fits && block_fits && smem >= 0 && smem <= 232448;
}
static inline dim3 cudaops_dim3(const long long (&extent)[3]) {
    return dim3((unsigned)extent[0], (unsigned)extent[1], (unsigned)extent[2]);
}
}  // namespace cudaops_naive_matmul
#pragma pop_macro("CUDAOPS_BK")
#pragma pop_macro("CUDAOPS_BM")
#pragma pop_macro("CUDAOPS_BN")
#pragma pop_macro("CUDAOPS_TM")
#pragma pop_macro("CUDAOPS_TN")
static inline void cudaops_launch_naive_matmul(
    dim3 cudaops_grid, dim3 cudaops_block, size_t cudaops_smem,
    cudaStream_t cudaops_stream, const float* A, const float* B, float* C, int N)
{
    bool cudaops_ok = true;
    const auto cudaops_divide = [&](auto a, auto b) { if (b == 0) { cudaops_ok = false; b = 1; } return a / b; };
    const auto cudaops_ceil_div = [&](long long a, long long b) { if (b <= 0) { cudaops_ok = false; b = 1; } return a / b + (a % b > 0); };
    if (!((((long long)cudaops_block.x * (long long)cudaops_grid.x) >= (long long)N))) cudaops_ok = false;  // @requires blockDim.x * gridDim.x >= N
    if (!((((long long)cudaops_block.y * (long long)cudaops_grid.y) >= (long long)N))) cudaops_ok = false;  // @requires blockDim.y * gridDim.y >= N
    const long long cudaops_grid0[3] = {(long long)(cudaops_ceil_div((long long)N, 64LL)), (long long)(cudaops_ceil_div((long long)N, 128LL)), 1};
    const long long cudaops_block0[3] = {(long long)((cudaops_divide(128LL, 8LL) * cudaops_divide(64LL, 8LL))), 1, 1};
    const long long cudaops_smem0 = (long long)(0LL);
    if (!cudaops_naive_matmul::cudaops_fits(cudaops_grid0, cudaops_block0, cudaops_smem0)) cudaops_ok = false;
    if (cudaops_ok) {
        cudaops_naive_matmul::naive_matmul_tiled<<<cudaops_naive_matmul::cudaops_dim3(cudaops_grid0), cudaops_naive_matmul::cudaops_dim3(cudaops_block0), (size_t)cudaops_smem0, cudaops_stream>>>(A, B, C, N);
        return;
    }
    ::naive_matmul<<<cudaops_grid, cudaops_block, cudaops_smem, cudaops_stream>>>(A, B, C, N);
}
// ---- cudaops: end

// Uniform in [0, 1): no sum cancels, so the checksum tells a wrong product from rounding.
static void fill(std::vector<float>& values, unsigned state) {
    for (float& value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(state >> 8) / 16777216.0f;
    }
}

int main() {
    const int N = 1024;
    const int warm_up = 3;
    const int timed = 20;
    const size_t count = static_cast<size_t>(N) * N;
    const size_t bytes = count * sizeof(float);

    std::vector<float> A(count), B(count), C(count);
    fill(A, 1u);
    fill(B, 2u);

    float *dA = nullptr, *dB = nullptr, *dC = nullptr;
    check(cudaMalloc(&dA, bytes), "cudaMalloc A");
    check(cudaMalloc(&dB, bytes), "cudaMalloc B");
    check(cudaMalloc(&dC, bytes), "cudaMalloc C");
    check(cudaMemcpy(dA, A.data(), bytes, cudaMemcpyHostToDevice), "copy A");
    check(cudaMemcpy(dB, B.data(), bytes, cudaMemcpyHostToDevice), "copy B");

    const dim3 block(16, 16);
    const dim3 grid((N + block.x - 1) / block.x, (N + block.y - 1) / block.y);

    for (int i = 0; i < warm_up; ++i) {
        cudaops_launch_naive_matmul(grid, block, 0, 0, dA, dB, dC, N);
    }
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "warm-up");

    cudaEvent_t start, stop;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    check(cudaEventRecord(start), "record");
    for (int i = 0; i < timed; ++i) {
        cudaops_launch_naive_matmul(grid, block, 0, 0, dA, dB, dC, N);
    }
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "timed launches");
    float total_ms = 0.0f;
    check(cudaEventElapsedTime(&total_ms, start, stop), "elapsed");

    check(cudaMemcpy(C.data(), dC, bytes, cudaMemcpyDeviceToHost), "copy C");
    double checksum = 0.0;
    for (size_t i = 0; i < count; ++i) checksum += C[i];

    std::printf("checksum %.6e\n", checksum);
    std::printf("corners %.6f %.6f %.6f %.6f\n", C[0], C[N - 1], C[count - N], C[count - 1]);
    std::fprintf(stderr, "KERNEL_MS: %.6f\n", total_ms / timed);

    check(cudaEventDestroy(start), "event");
    check(cudaEventDestroy(stop), "event");
    check(cudaFree(dA), "free");
    check(cudaFree(dB), "free");
    check(cudaFree(dC), "free");
    return 0;
}
