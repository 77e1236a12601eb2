// Histogram of bytes in 256 bins: one thread a byte, one atomic a byte.
// histogram256 [bytes [repeats]]
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void histogram256(const unsigned char* data, unsigned int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[data[i]], 1u);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000000;
    int repeats = argc > 2 ? atoi(argv[2]) : 3;
    std::vector<unsigned char> data(n);
    unsigned state = 2024u;
    for (int i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        unsigned a = state >> 24;
        state = state * 1664525u + 1013904223u;
        unsigned b = state >> 24;
        data[i] = (unsigned char)((a + b) / 2);   // a hill around 127, as in photographs
    }
    unsigned char* d_data;
    unsigned int* d_bins;
    cudaMalloc(&d_data, n);
    cudaMalloc(&d_bins, 256 * sizeof(unsigned int));
    cudaMemcpy(d_data, data.data(), n, cudaMemcpyHostToDevice);
    int block = 256, grid = (n + block - 1) / block;
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    float ms = 0.0f, one = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        cudaMemset(d_bins, 0, 256 * sizeof(unsigned int));
        cudaEventRecord(start);
        histogram256<<<grid, block>>>(d_data, d_bins, n);
        cudaEventRecord(stop);
        cudaEventSynchronize(stop);
        cudaEventElapsedTime(&one, start, stop);
        ms += one;
    }
    unsigned int bins[256];
    cudaMemcpy(bins, d_bins, sizeof(bins), cudaMemcpyDeviceToHost);
    unsigned long long check = 0;
    for (int b = 0; b < 256; ++b) check += (unsigned long long)bins[b] * (b + 1);
    printf("checksum %llu\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(d_data);
    cudaFree(d_bins);
    return 0;
}
