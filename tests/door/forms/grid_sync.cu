// A grid-wide barrier in a kernel launched by cudaLaunchCooperativeKernel.
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;
__global__ void sum(const float *v, float *part, float *out, int n) {
    cg::grid_group grid = cg::this_grid();
    float s = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) s += v[i];
    atomicAdd(&part[blockIdx.x], s);
    grid.sync();
    if (grid.thread_rank() == 0) for (int b = 0; b < gridDim.x; ++b) *out += part[b];
}
int main() {
    int n = 10000;
    float *v, *part, *out;
    cudaMallocManaged(&v, n * sizeof(float));
    cudaMallocManaged(&part, 8 * sizeof(float));
    cudaMallocManaged(&out, sizeof(float));
    for (int i = 0; i < n; ++i) v[i] = 1;
    void *args[] = {&v, &part, &out, &n};
    cudaLaunchCooperativeKernel((void *)sum, dim3(8), dim3(256), args, 0, 0);
    cudaDeviceSynchronize();
    printf("%g\n", *out);
}
