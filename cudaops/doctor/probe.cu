// The doctor's program: one small kernel whose result is known. With an argument the kernel also
// touches the element behind its buffer, for a memory checker to find.
#include <cstdio>
#include <cstdlib>

__global__ void twice(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}

int main(int argc, char**) {
    const int n = 1 << 16;
    const size_t bytes = n * sizeof(float);
    float* host = static_cast<float*>(std::malloc(bytes));
    for (int i = 0; i < n; ++i) host[i] = static_cast<float>(i);
    float* device = nullptr;
    cudaMalloc(&device, bytes);
    cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
    const int touched = argc > 1 ? n + 1 : n;
    twice<<<(touched + 255) / 256, 256>>>(device, touched);
    cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
        return 3;
    }
    for (int i = 0; i < n; ++i) {
        if (host[i] != 2.0f * static_cast<float>(i)) {
            std::fprintf(stderr, "element %d is %g\n", i, static_cast<double>(host[i]));
            return 4;
        }
    }
    std::puts("twice");
    return 0;
}
