#include <cstdio>
#include <cstdlib>
#include <vector>

struct Shape { int rows, columns; };
__host__ __device__ inline float weight(Shape shape, int column) { return 1.0f + (float)column / shape.columns; }

__global__ void add_rows(const float* x, float* raw, int columns) {
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        sum += weight(Shape{0, columns}, c) * x[blockIdx.x * columns + c];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(&raw[blockIdx.x], sum);
}

__global__ void scale_rows(const float* raw, float* sums, float scale, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) sums[row] = scale * raw[row];
}

__global__ void total(const float* sums, float* result, int rows) {
    float sum = 0.0f;
    for (int r = 0; r < rows; ++r) sum += sums[r];
    *result = sum;
}

int main(int argc, char** argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 512, columns = 256;
    std::vector<float> h(rows * columns);
    for (int i = 0; i < rows * columns; ++i) h[i] = (float)(i * 7 % 23) - 11.0f;
    float *d_x, *d_sums, *d_result, result;
    cudaMalloc(&d_x, h.size() * sizeof(float));
    cudaMalloc(&d_sums, rows * sizeof(float));
    cudaMalloc(&d_result, sizeof(float));
    float* d_raw;
    cudaMalloc(&d_raw, rows * sizeof(float));
    cudaMemcpy(d_x, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(d_raw, 0, rows * sizeof(float));
    add_rows<<<rows, 64>>>(d_x, d_raw, columns);
    scale_rows<<<(rows + 63) / 64, 64>>>(d_raw, d_sums, 0.5f, rows);
    total<<<1, 1>>>(d_sums, d_result, rows);
    cudaMemcpy(&result, d_result, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", result);
    return 0;
}
