// Written for cudaops: a sum with warp shuffles, dynamic shared memory and one atomic a block.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

__global__ void block_sums(const float* __restrict__ data, float* __restrict__ sums, int n) {
    extern __shared__ float partial[];
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += data[i];
    v = warp_sum(v);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < (blockDim.x + 31) / 32 ? partial[lane] : 0.0f;
        v = warp_sum(v);
        if (lane == 0) sums[blockIdx.x] = v;
    }
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 20000, blocks = 8, threads = 128;
    std::vector<float> h(n);
    for (int i = 0; i < n; i++) h[i] = (i % 17) / 16.0f;
    float *data, *sums, out[blocks];
    cudaMalloc(&data, n * sizeof(float));
    cudaMalloc(&sums, sizeof(out));
    cudaMemcpy(data, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    block_sums<<<blocks, threads, (threads / 32) * sizeof(float), stream>>>(data, sums, n);
    cudaStreamSynchronize(stream);
    cudaMemcpy(out, sums, sizeof(out), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : out) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f\n", s, out[0], out[blocks - 1]);
    cudaStreamDestroy(stream);
    return 0;
}
