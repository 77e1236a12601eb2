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
// ---- cudaops: register tiling, 4x4 outputs a thread (llm:scripted:examples/scripts/naive_matmul.json, 93f73406ecda)
#pragma push_macro("DEPTH")
#undef DEPTH
#pragma push_macro("EACH")
#undef EACH
#pragma push_macro("TILE")
#undef TILE
#define DEPTH 32
namespace cudaops_naive_matmul {
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
#pragma pop_macro("DEPTH")
#pragma pop_macro("EACH")
#pragma pop_macro("TILE")
static inline void cudaops_launch_naive_matmul(
    dim3 cudaops_grid, dim3 cudaops_block, size_t cudaops_smem,
    cudaStream_t cudaops_stream, const float* A, const float* B, float* C, int N)
{
    bool cudaops_ok = true;
    if (!((((long long)N % 64LL) == 0LL))) cudaops_ok = false;  // @requires N % 64 == 0
    const long long cudaops_grid0[3] = {(long long)(((long long)N / 64LL)), (long long)(((long long)N / 64LL)), 1};
    const long long cudaops_block0[3] = {(long long)(16LL), (long long)(16LL), 1};
    const long long cudaops_smem0 = (long long)(0LL);
    if (!cudaops_naive_matmul::cudaops_fits(cudaops_grid0, cudaops_block0, cudaops_smem0)) cudaops_ok = false;
    if (cudaops_ok) {
        cudaops_naive_matmul::register_tiled_matmul<<<cudaops_naive_matmul::cudaops_dim3(cudaops_grid0), cudaops_naive_matmul::cudaops_dim3(cudaops_block0), (size_t)cudaops_smem0, cudaops_stream>>>(A, B, C, N);
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
