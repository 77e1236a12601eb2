// A 1024x1024 single-precision matrix product as one would first write it: one thread an output,
// every operand read from global memory. Prints a checksum and the four corners of C on stdout,
// and the mean kernel time by CUDA events as "KERNEL_MS: x" on stderr.
//
//   nvcc -O3 -arch=sm_86 naive_matmul.cu -o naive_matmul && ./naive_matmul

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

static void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
}

__global__ void naive_matmul(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N || col >= N) return;

    float sum = 0.0f;
    for (int k = 0; k < N; ++k) {
        sum += A[row * N + k] * B[k * N + col];
    }
    C[row * N + col] = sum;
}

// Uniform in [0, 1): no sum cancels, so the checksum tells a wrong product from rounding.
static void fill(std::vector<float>& values, unsigned state) {
    for (float& value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(state >> 8) / 16777216.0f;
    }
}

int main() {
    const int N = 1024;
    const int warm_up = 3;
    const int timed = 20;
    const size_t count = static_cast<size_t>(N) * N;
    const size_t bytes = count * sizeof(float);

    std::vector<float> A(count), B(count), C(count);
    fill(A, 1u);
    fill(B, 2u);

    float *dA = nullptr, *dB = nullptr, *dC = nullptr;
    check(cudaMalloc(&dA, bytes), "cudaMalloc A");
    check(cudaMalloc(&dB, bytes), "cudaMalloc B");
    check(cudaMalloc(&dC, bytes), "cudaMalloc C");
    check(cudaMemcpy(dA, A.data(), bytes, cudaMemcpyHostToDevice), "copy A");
    check(cudaMemcpy(dB, B.data(), bytes, cudaMemcpyHostToDevice), "copy B");

    const dim3 block(16, 16);
    const dim3 grid((N + block.x - 1) / block.x, (N + block.y - 1) / block.y);

    for (int i = 0; i < warm_up; ++i) {
        naive_matmul<<<grid, block>>>(dA, dB, dC, N);
    }
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "warm-up");

    cudaEvent_t start, stop;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    check(cudaEventRecord(start), "record");
    for (int i = 0; i < timed; ++i) {
        naive_matmul<<<grid, block>>>(dA, dB, dC, N);
    }
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "timed launches");
    float total_ms = 0.0f;
    check(cudaEventElapsedTime(&total_ms, start, stop), "elapsed");

    check(cudaMemcpy(C.data(), dC, bytes, cudaMemcpyDeviceToHost), "copy C");
    double checksum = 0.0;
    for (size_t i = 0; i < count; ++i) checksum += C[i];

    std::printf("checksum %.6e\n", checksum);
    std::printf("corners %.6f %.6f %.6f %.6f\n", C[0], C[N - 1], C[count - N], C[count - 1]);
    std::fprintf(stderr, "KERNEL_MS: %.6f\n", total_ms / timed);

    check(cudaEventDestroy(start), "event");
    check(cudaEventDestroy(stop), "event");
    check(cudaFree(dA), "free");
    check(cudaFree(dB), "free");
    check(cudaFree(dC), "free");
    return 0;
}
