// Many small products at once, each a block, operands in shared memory.

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

__global__ void products(const float* a, const float* b, float* out) {
    __shared__ float left[32][32];
    __shared__ float right[32][32];
    const int at = blockIdx.x * 1024 + threadIdx.y * 32 + threadIdx.x;
    left[threadIdx.y][threadIdx.x] = a[at];
    right[threadIdx.y][threadIdx.x] = b[at];
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < 32; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    out[at] = sum;
}

int main() {
    const int batch = 64;
    float* a = filled(batch * 1024, 1u);
    float* b = filled(batch * 1024, 2u);
    float* out = nullptr;
    cudaMalloc(&out, batch * 1024 * sizeof(float));
    cudaMemset(out, 0, batch * 1024 * sizeof(float));
    products<<<batch, dim3(32, 32)>>>(a, b, out);
    std::vector<float> host(batch * 1024);
    cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0.0;
    for (float value : host) sum += value;
    std::printf("checksum %.6e\n", sum);
    return cudaGetLastError() != cudaSuccess;
}
