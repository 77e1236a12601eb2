// Sums of the columns of a table and of their squares: one thread an element, two atomics each.
// column_sums [rows [cols [repeats]]]
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void column_sums(const float* table, float* sum, float* square, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * cols) return;
    float v = table[i];
    atomicAdd(&sum[i % cols], v);
    atomicAdd(&square[i % cols], v * v);
}

int main(int argc, char** argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 3000;
    int cols = argc > 2 ? atoi(argv[2]) : 96;
    int repeats = argc > 3 ? atoi(argv[3]) : 3;
    size_t n = (size_t)rows * cols;
    std::vector<float> table(n);
    unsigned state = 8u;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        table[i] = (float)(state >> 8) / (1 << 24);
    }
    float *d_table, *d_sum, *d_square;
    cudaMalloc(&d_table, n * sizeof(float));
    cudaMalloc(&d_sum, cols * sizeof(float));
    cudaMalloc(&d_square, cols * sizeof(float));
    cudaMemcpy(d_table, table.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    int block = 256, grid = (int)((n + block - 1) / block);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    float ms = 0.0f, one = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        cudaMemset(d_sum, 0, cols * sizeof(float));
        cudaMemset(d_square, 0, cols * sizeof(float));
        cudaEventRecord(start);
        column_sums<<<grid, block>>>(d_table, d_sum, d_square, rows, cols);
        cudaEventRecord(stop);
        cudaEventSynchronize(stop);
        cudaEventElapsedTime(&one, start, stop);
        ms += one;
    }
    std::vector<float> sum(cols), square(cols);
    cudaMemcpy(sum.data(), d_sum, cols * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpy(square.data(), d_square, cols * sizeof(float), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (int c = 0; c < cols; ++c) check += sum[c] / rows + square[c] / rows * (c % 3 + 1);
    printf("checksum %.3f\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(d_table);
    cudaFree(d_sum);
    cudaFree(d_square);
    return 0;
}
