// Written for cudaops: other names, 1-D block, template parameter, kernel in a local header, sizes
// from argv: gemm_header [rows cols inner].
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_runtime.h"
#include "gemm_kernel.cuh"

constexpr int kThreads = 128;

int main(int argc, char **argv) {
    const int rows = argc > 1 ? std::atoi(argv[1]) : 48;
    const int cols = argc > 2 ? std::atoi(argv[2]) : 40;
    const int inner = argc > 3 ? std::atoi(argv[3]) : 56;
    std::vector<float> w(rows * inner), x(inner * cols), y(rows * cols);
    for (size_t i = 0; i < w.size(); ++i) w[i] = float((i * 7 + 3) % 13) / 13.0f - 0.5f;
    for (size_t i = 0; i < x.size(); ++i) x[i] = float((i * 5 + 1) % 17) / 17.0f - 0.25f;
    float *dw, *dx, *dy;
    cudaMalloc(&dw, w.size() * sizeof(float));
    cudaMalloc(&dx, x.size() * sizeof(float));
    cudaMalloc(&dy, y.size() * sizeof(float));
    cudaMemcpy(dw, w.data(), w.size() * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
    const int blocks = (rows * cols + kThreads - 1) / kThreads;
    for (int repeat = 0; repeat < 3; ++repeat)
        dense_layer<kThreads><<<blocks, kThreads>>>(dw, dx, dy, rows, cols, inner);
    cudaMemcpy(y.data(), dy, y.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double checksum = 0;
    for (float v : y) checksum += v;
    printf("checksum %.6e\ncorners %.6f %.6f %.6f %.6f\n", checksum, y[0], y[cols - 1],
           y[(rows - 1) * cols], y[rows * cols - 1]);
    cudaFree(dw);
    cudaFree(dx);
    cudaFree(dy);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
