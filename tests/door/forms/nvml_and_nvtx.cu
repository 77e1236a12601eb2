// nvcc: -lnvidia-ml
// The device is asked by NVML, and ranges are marked for a profiler.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include <nvml.h>
#include <nvtx3/nvToolsExt.h>

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
    nvmlDevice_t device;
    unsigned mhz = 0, watts = 0;
    if (nvmlInit() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex(0, &device) != NVML_SUCCESS) return 1;
    nvmlDeviceGetClockInfo(device, NVML_CLOCK_MEM, &mhz);
    if (nvmlDeviceGetPowerUsage(device, &watts) == NVML_SUCCESS) printf("a meter\n");
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    nvtxRangePushA("rows");
    for (int i = 0; i < 10; ++i) rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    nvtxRangePop();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g %s\n", sum, g[0], mhz > 100 ? "clocked" : "");
    nvmlShutdown();
    return 0;
}
