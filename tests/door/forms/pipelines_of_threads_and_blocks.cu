// nvcc: -arch=sm_86
// cuda::pipeline: of each thread, and of a block in two stages.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
constexpr int STAGES = 2, TILE = 64;
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
__global__ void total(const float *s, float *out, int rows) {
    __shared__ float held[STAGES * TILE];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    int tiles = rows / TILE, asked = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        for (; asked < tiles && asked < tile + STAGES; ++asked) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, held + asked % STAGES * TILE, s + asked * TILE, sizeof(float) * TILE, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += held[tile % STAGES * TILE + (threadIdx.x + 1) % TILE];
        pipe.consumer_release();
    }
    atomicAdd(out, sum);
}
__global__ void moved(const float4 *from, float4 *to) {
    __shared__ float4 held[TILE];
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(held + threadIdx.x, from + threadIdx.x, cuda::aligned_size_t<16>(sizeof(float4)), pipe);
    pipe.producer_commit();
    cuda::pipeline_consumer_wait_prior<0>(pipe);
    to[threadIdx.x] = held[threadIdx.x];
    pipe.consumer_release();
}
int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 256, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s, *out;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemset(out, 0, sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    moved<<<1, TILE>>>((const float4 *)a + 1, (float4 *)a);
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    total<<<1, TILE>>>(s, out, rows);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    float sum = 0;
    cudaMemcpy(&sum, out, sizeof sum, cudaMemcpyDeviceToHost);
    printf("sum %g first %g\n", sum, g[0]);
    return 0;
}
