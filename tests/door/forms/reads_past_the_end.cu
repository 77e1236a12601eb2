// The last row's end is read one place past the offsets, as far as their memory goes.
// no rewrite: past the end of
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void row_totals(const int *start, const float *x, float *total, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float t = 0;
    for (int i = start[r]; i < start[r + 1]; ++i) t += x[i];
    total[r] = t;
}
int main() {
    int rows = 1024, each = 3;
    std::vector<int> start(rows);
    std::vector<float> x(rows * each, 0.5f), total(rows);
    for (int r = 0; r < rows; ++r) start[r] = r * each;
    int *s; float *d, *t;
    cudaMalloc(&s, rows * sizeof(int));
    cudaMalloc(&d, x.size() * sizeof(float));
    cudaMalloc(&t, rows * sizeof(float));
    cudaMemcpy(s, start.data(), rows * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(d, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
    row_totals<<<rows / 128, 128>>>(s, d, t, rows);
    cudaMemcpy(total.data(), t, rows * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", total[0]);
    return total[0] == 1.5f ? 0 : 1;
}
