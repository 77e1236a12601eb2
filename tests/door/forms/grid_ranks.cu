// The grid as a cooperative group: only its ranks are read, no grid.sync().
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;
__global__ void scale(float *v, int n) {
    auto grid = cg::this_grid();
    for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) v[i] *= 2;
}
int main() {
    const int n = 10000;
    float *v;
    cudaMallocManaged(&v, n * sizeof(float));
    for (int i = 0; i < n; ++i) v[i] = i;
    scale<<<8, 256>>>(v, n);
    cudaDeviceSynchronize();
    printf("%g\n", v[n - 1]);
}
