// A layer of a network: inputs times weights plus a bias, a thread an output.

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

__global__ void layer(const float* inputs, const float* weights, const float* bias, float* out,
                      int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    float value = bias[column];
    for (int i = 0; i < k; ++i) value += inputs[row * k + i] * weights[i * n + column];
    out[row * n + column] = value;
}

int main() {
    const int m = 128, n = 128, k = 256;
    float* inputs = filled(m * k, 1u);
    float* weights = filled(k * n, 2u);
    float* bias = filled(n, 3u);
    float* out = nullptr;
    cudaMalloc(&out, m * n * sizeof(float));
    cudaMemset(out, 0, m * n * sizeof(float));
    layer<<<dim3(n / 16, m / 16), dim3(16, 16)>>>(inputs, weights, bias, out, m, n, k);
    std::vector<float> host(m * n);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
