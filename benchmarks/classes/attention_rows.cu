// Attention of every query over all keys, a thread a query, one head.

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

__global__ void attend(const float* q, const float* k, const float* v, float* out, int tokens,
                       float scale) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= tokens) return;
    float largest = -1e30f;
    for (int t = 0; t < tokens; ++t) {
        float dot = 0.0f;
        for (int d = 0; d < 32; ++d) dot += q[row * 32 + d] * k[t * 32 + d];
        largest = fmaxf(largest, dot * scale);
    }
    float total = 0.0f;
    float mixed[32] = {};
    for (int t = 0; t < tokens; ++t) {
        float dot = 0.0f;
        for (int d = 0; d < 32; ++d) dot += q[row * 32 + d] * k[t * 32 + d];
        const float weight = expf(dot * scale - largest);
        total += weight;
        for (int d = 0; d < 32; ++d) mixed[d] += weight * v[t * 32 + d];
    }
    for (int d = 0; d < 32; ++d) out[row * 32 + d] = mixed[d] / total;
}

int main() {
    const int tokens = 256;
    float* q = filled(tokens * 32, 1u);
    float* k = filled(tokens * 32, 2u);
    float* v = filled(tokens * 32, 3u);
    float* out = nullptr;
    cudaMalloc(&out, tokens * 32 * sizeof(float));
    cudaMemset(out, 0, tokens * 32 * sizeof(float));
    attend<<<tokens / 64, 64>>>(q, k, v, out, tokens, 0.17677670f);
    std::vector<float> host(tokens * 32);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
