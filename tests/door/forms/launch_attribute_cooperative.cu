// A launch by a configuration whose attribute lets the grid wait for itself.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    cg::this_grid().sync();
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    cudaLaunchAttribute attrs[1];
    attrs[0].id = cudaLaunchAttributeCooperative;
    attrs[0].val.cooperative = 1;
    cudaLaunchConfig_t cfg = {};
    cfg.gridDim = (rows + 31) / 32;
    cfg.blockDim = 32;
    cfg.attrs = attrs;
    cfg.numAttrs = 1;
    cudaLaunchKernelEx(&cfg, rowsum, a, s, rows, cols);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
