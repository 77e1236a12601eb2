// Intrinsic functions that round toward zero, up and down: bounds of a sum.
#include <cstdio>
#include <cstdlib>
#include <vector>
__global__ void bounds(const float *a, float *low, double *high, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float down = 0;
    double up = 0;
    for (int c = 0; c < cols; ++c) {
        down = __fadd_rd(down, __fmul_rd(a[r * cols + c], 0.1f));
        up = __dadd_ru(up, __ddiv_ru(a[r * cols + c], 9.0));
    }
    low[r] = __fmaf_rz(down, 1.0f, __fsqrt_rd(0.0f));
    high[r] = __fma_ru(up, 1.0, __drcp_ru(1e300));
}
__global__ void ends(float *e, float tiny) {
    e[0] = __fadd_rz(1.0f, tiny);
    e[1] = __fadd_ru(1.0f, tiny);
    e[2] = __fsub_rd(1.0f, tiny);
    e[3] = __fdiv_ru(1.0f, 3.0f) - __fdiv_rd(1.0f, 3.0f);
    e[4] = __fsqrt_ru(4.0f);
}
int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 96, cols = argc > 2 ? atoi(argv[2]) : 200;
    std::vector<float> h(rows * cols), low(rows);
    std::vector<double> high(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) + 0.3f;
    float *a, *l, *e, end[5];
    double *u;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&l, rows * sizeof(float));
    cudaMalloc(&u, rows * sizeof(double));
    cudaMalloc(&e, sizeof end);
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    bounds<<<(rows + 31) / 32, 32>>>(a, l, u, rows, cols);
    ends<<<1, 1>>>(e, 1e-12f);
    cudaMemcpy(low.data(), l, rows * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpy(high.data(), u, rows * sizeof(double), cudaMemcpyDeviceToHost);
    cudaMemcpy(end, e, sizeof end, cudaMemcpyDeviceToHost);
    if (end[0] != 1.0f || end[1] <= 1.0f || end[2] >= 1.0f || end[3] <= 0.0f || end[4] != 2.0f) return 1;
    for (int r = 0; r < rows; ++r)
        if (low[r] > 0.9 * high[r] + 1e-3 || high[r] > 1.2 * low[r]) return 2;
    printf("row 0: %g %g\n", low[0], high[0]);
    return 0;
}
