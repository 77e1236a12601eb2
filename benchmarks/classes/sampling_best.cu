// The most likely token of every row, a thread a row.

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

__global__ void best_token(const float* logits, float* out, int rows, int words) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float most = -1e30f;
    int token = 0;
    for (int i = 0; i < words; ++i) {
        if (logits[row * words + i] > most) {
            most = logits[row * words + i];
            token = i;
        }
    }
    out[row] = token;
}

int main() {
    const int rows = 256, words = 1024;
    float* logits = filled(rows * words, 1u);
    float* out = nullptr;
    cudaMalloc(&out, rows * sizeof(float));
    cudaMemset(out, 0, rows * sizeof(float));
    best_token<<<rows / 64, 64>>>(logits, out, rows, words);
    std::vector<float> host(rows);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
