// CUB's device-wide algorithms beside the kernel, by their own headers.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
template <class Call> void with_memory(Call call) {
    void *memory = nullptr;
    size_t bytes = 0;
    call(memory, bytes);
    cudaMalloc(&memory, bytes);
    call(memory, bytes);
    cudaFree(memory);
}
struct Positive {
    __host__ __device__ bool operator()(float v) const { return v > 0; }
};
int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s, *sorted, *running, *total;
    int *count, *places, *order;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, rows * sizeof(float));
    cudaMalloc(&sorted, rows * sizeof(float));
    cudaMalloc(&running, rows * sizeof(float));
    cudaMalloc(&total, sizeof(float));
    cudaMalloc(&count, sizeof(int));
    cudaMalloc(&places, rows * sizeof(int));
    cudaMalloc(&order, rows * sizeof(int));
    std::vector<int> from(rows), to(rows);
    for (int i = 0; i < rows; ++i) from[i] = i;
    cudaMemcpy(places, from.data(), rows * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    with_memory([&](void *m, size_t &b) { cub::DeviceReduce::Sum(m, b, s, total, rows); });
    with_memory([&](void *m, size_t &b) { cub::DeviceScan::ExclusiveSum(m, b, s, running, rows); });
    with_memory([&](void *m, size_t &b) {
        cub::DeviceRadixSort::SortPairsDescending(m, b, s, sorted, places, order, rows);
    });
    std::vector<float> largest_first(rows), before(rows);
    cudaMemcpy(largest_first.data(), sorted, rows * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpy(before.data(), running, rows * sizeof(float), cudaMemcpyDeviceToHost);
    with_memory([&](void *m, size_t &b) { cub::DeviceSelect::If(m, b, s, sorted, count, rows, Positive()); });
    float sum;
    int above;
    cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost);
    cudaMemcpy(&above, count, sizeof above, cudaMemcpyDeviceToHost);
    cudaMemcpy(to.data(), order, rows * sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpy(g.data(), s, rows * sizeof(float), cudaMemcpyDeviceToHost);
    double want = 0;
    int positive = 0;
    for (int i = 0; i < rows; ++i) {
        if (before[i] - want > 0.01 || want - before[i] > 0.01) return 1;
        want += g[i], positive += g[i] > 0;
        if (i && largest_first[i] > largest_first[i - 1]) return 2;
        if (largest_first[i] != g[to[i]]) return 3;
    }
    printf("sum %g of which %d above 0\n", sum, above);
    return sum - want > 0.01 || want - sum > 0.01 || above != positive;
}
