// Where each element goes when the chosen ones are packed: a block's exclusive sums.

#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

// Uniform in [0, 1).
static float* filled(size_t count, unsigned state) {
    std::vector<float> host(count);
    for (float& value : host) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(state >> 8) / 16777216.0f;
    }
    float* device = nullptr;
    cudaMalloc(&device, count * sizeof(float));
    cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice);
    return device;
}

__global__ void offsets(const float* x, float* out, float least) {
    __shared__ float counts[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    const float chosen = x[i] > least ? 1.0f : 0.0f;
    counts[threadIdx.x] = chosen;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        const float before = threadIdx.x >= step ? counts[threadIdx.x - step] : 0.0f;
        __syncthreads();
        counts[threadIdx.x] += before;
        __syncthreads();
    }
    out[i] = counts[threadIdx.x] - chosen;
}

int main() {
    const int count = 256 * 256;
    float* x = filled(count, 1u);
    float* out = nullptr;
    cudaMalloc(&out, count * sizeof(float));
    cudaMemset(out, 0, count * sizeof(float));
    offsets<<<count / 256, 256>>>(x, out, 0.5f);
    std::vector<float> host(count);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
