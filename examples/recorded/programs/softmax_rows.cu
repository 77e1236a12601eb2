// Softmax of every row of a matrix: one thread a row, three passes.
// softmax_rows [rows [cols [repeats]]]
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>

__global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in = x + (size_t)row * cols;
    float* out = y + (size_t)row * cols;
    float top = in[0];
    for (int c = 1; c < cols; ++c) top = fmaxf(top, in[c]);
    float sum = 0.0f;
    for (int c = 0; c < cols; ++c) sum += expf(in[c] - top);
    for (int c = 0; c < cols; ++c) out[c] = expf(in[c] - top) / sum;
}

int main(int argc, char** argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 300;
    int cols = argc > 2 ? atoi(argv[2]) : 500;
    int repeats = argc > 3 ? atoi(argv[3]) : 3;
    size_t n = (size_t)rows * cols;
    std::vector<float> x(n), y(n);
    unsigned state = 12345u;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / (1 << 24) * 8.0f - 4.0f;
    }
    float *dx, *dy;
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dy, n * sizeof(float));
    cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    int block = 128, grid = (rows + block - 1) / block;
    softmax_rows<<<grid, block>>>(dx, dy, rows, cols);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r) softmax_rows<<<grid, block>>>(dx, dy, rows, cols);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    cudaMemcpy(y.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (size_t i = 0; i < n; ++i) check += y[i] * (double)(i % 7 + 1);
    printf("checksum %.6f\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(dx);
    cudaFree(dy);
    return 0;
}
