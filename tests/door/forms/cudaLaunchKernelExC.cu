// The C form of the launch by a configuration, with an attribute that changes no result.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
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
    cudaLaunchConfig_t cfg = {};
    cfg.gridDim = dim3((rows + 31) / 32);
    cfg.blockDim = dim3(32);
    cudaLaunchAttribute attrs[1] = {};
    attrs[0].id = cudaLaunchAttributePriority;
    attrs[0].val.priority = 0;
    cfg.attrs = attrs;
    cfg.numAttrs = 1;
    void *args[] = {&a, &s, &rows, &cols};
    cudaLaunchKernelExC(&cfg, (const void *)rowsum, args);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
