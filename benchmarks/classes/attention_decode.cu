// One new token over a cache that lies in pages, a block a head.

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

__global__ void decode_one(const float* query, const float* cache, const int* pages, float* out,
                           int length) {
    __shared__ float scores[512];
    __shared__ float sums[64];
    const int head = blockIdx.x;
    for (int t = threadIdx.x; t < length; t += blockDim.x) {
        const float* key = cache + ((pages[t / 16] * 16 + t % 16) * gridDim.x + head) * 64;
        float score = 0.0f;
        for (int d = 0; d < 64; ++d) score += query[head * 64 + d] * key[d];
        scores[t] = score * 0.125f;
    }
    __syncthreads();
    float top = -1e30f;
    for (int t = 0; t < length; ++t) top = fmaxf(top, scores[t]);
    float sum = 0.0f;
    float mixed = 0.0f;
    for (int t = 0; t < length; ++t) {
        const float weight = expf(scores[t] - top);
        sum += weight;
        mixed += weight * cache[((pages[t / 16] * 16 + t % 16) * gridDim.x + head) * 64 + threadIdx.x];
    }
    sums[threadIdx.x] = sum;
    out[head * 64 + threadIdx.x] = mixed / sums[threadIdx.x];
}

int main() {
    const int length = 512, heads = 8;
    float* query = filled(heads * 64, 1u);
    float* cache = filled(length * heads * 64, 2u);
    std::vector<int> table(length / 16);
    for (int i = 0; i < length / 16; ++i) table[i] = (i * 7) % (length / 16);
    int* pages = nullptr;
    cudaMalloc(&pages, table.size() * sizeof(int));
    cudaMemcpy(pages, table.data(), table.size() * sizeof(int), cudaMemcpyHostToDevice);
    float* out = nullptr;
    cudaMalloc(&out, heads * 64 * sizeof(float));
    cudaMemset(out, 0, heads * 64 * sizeof(float));
    decode_one<<<heads, 64>>>(query, cache, pages, out, length);
    std::vector<float> host(heads * 64);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
