#include <cstdio>
#include <cstdlib>
#include <vector>

struct Shape { int rows, columns; };
__host__ __device__ inline float weight(Shape shape, int column) { return 1.0f + (float)column / shape.columns; }

// Four blocks a row, each with a sum of its own; then the sums of a row are joined.
template <int THREADS>
__global__ void part_sums(const float* __restrict__ values, float* __restrict__ parts, int width) {
    __shared__ float shared[THREADS];
    float sum = 0.0f;
    for (int c = blockIdx.y * THREADS + threadIdx.x; c < width; c += THREADS * gridDim.y)
        sum += weight(Shape{0, width}, c) * values[blockIdx.x * width + c];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) parts[blockIdx.x * gridDim.y + blockIdx.y] = shared[0];
}

__global__ void join_sums(const float* parts, float* out, float factor, int count, int parts_per_row) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    float sum = 0.0f;
    for (int p = 0; p < parts_per_row; ++p) sum += parts[row * parts_per_row + p];
    out[row] = factor * sum;
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
    float* d_parts;
    cudaMalloc(&d_parts, 4 * rows * sizeof(float));
    cudaMemcpy(d_x, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    part_sums<64><<<dim3(rows, 4), 64>>>(d_x, d_parts, columns);
    join_sums<<<(rows + 255) / 256, 256>>>(d_parts, d_sums, 0.5f, rows, 4);
    total<<<1, 1>>>(d_sums, d_result, rows);
    cudaMemcpy(&result, d_result, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", result);
    return 0;
}
