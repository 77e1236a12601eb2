// A residual is added, then mean and variance of the row are taken out; a block a row.

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

__global__ void add_and_centre(const float* x, const float* residual, const float* gamma,
                               const float* beta, float* out, int width) {
    __shared__ float sums[128];
    __shared__ float squares[128];
    const int at = blockIdx.x * width;
    float sum = 0.0f;
    float square = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float value = x[at + i] + residual[at + i];
        sum += value;
        square += value * value;
    }
    sums[threadIdx.x] = sum;
    squares[threadIdx.x] = square;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            sums[threadIdx.x] += sums[threadIdx.x + step];
            squares[threadIdx.x] += squares[threadIdx.x + step];
        }
        __syncthreads();
    }
    const float mean = sums[0] / width;
    const float scale = 1.0f / sqrtf(squares[0] / width - mean * mean + 1e-5f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        out[at + i] = (x[at + i] + residual[at + i] - mean) * scale * gamma[i] + beta[i];
    }
}

int main() {
    const int count = 256, width = 512;
    float* x = filled(count * width, 1u);
    float* residual = filled(count * width, 2u);
    float* gamma = filled(width, 3u);
    float* beta = filled(width, 4u);
    float* out = nullptr;
    cudaMalloc(&out, count * width * sizeof(float));
    cudaMemset(out, 0, count * width * sizeof(float));
    add_and_centre<<<count, 128>>>(x, residual, gamma, beta, out, width);
    std::vector<float> host(count * width);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
