// Every row over the root of the mean of its squares, a thread a row.

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

__global__ void rows(const float* x, const float* gain, float* out, int count, int width) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    float squares = 0.0f;
    for (int i = 0; i < width; ++i) squares += x[row * width + i] * x[row * width + i];
    const float by = rsqrtf(squares / width + 1e-6f);
    for (int i = 0; i < width; ++i) out[row * width + i] = x[row * width + i] * by * gain[i];
}

int main() {
    const int count = 512, width = 256;
    float* x = filled(count * width, 1u);
    float* gain = filled(width, 2u);
    float* out = nullptr;
    cudaMalloc(&out, count * width * sizeof(float));
    cudaMemset(out, 0, count * width * sizeof(float));
    rows<<<count / 64, 64>>>(x, gain, out, count, width);
    std::vector<float> host(count * width);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
