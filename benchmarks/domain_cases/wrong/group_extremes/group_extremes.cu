// Largest value and number of members of each group. Floats are compared as ordered integers, so that atomicMax serves any sign.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__host__ __device__ inline unsigned ordered(unsigned bits) { return bits & 0x80000000u ? ~bits : bits | 0x80000000u; }

__global__ void extremes(const float *value, const int *group, unsigned *top, int *members, int n, int groups)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int g = group[i];
    if (g < 0 || g >= groups) return;
    atomicMax(&top[g], ordered(__float_as_uint(value[i])));
    atomicAdd(&members[g], 1);
}

int main()
{
    const int n = 16384, groups = 512;
    std::vector<float> v(n);
    std::vector<int> g(n), m(groups);
    std::vector<unsigned> t(groups);
    for (int i = 0; i < n; ++i) { v[i] = 1.f + ((i * 2654435761u) >> 12) / 65536.f; g[i] = i / 32; }
    float *dv; int *dg, *dm; unsigned *dt;
    cudaMalloc(&dv, n * 4); cudaMalloc(&dg, n * 4); cudaMalloc(&dm, groups * 4); cudaMalloc(&dt, groups * 4);
    cudaMemcpy(dv, v.data(), n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dg, g.data(), n * 4, cudaMemcpyHostToDevice);
    cudaMemset(dm, 0, groups * 4);
    cudaMemset(dt, 0, groups * 4);
    extremes<<<n / 256, 256>>>(dv, dg, dt, dm, n, groups);
    cudaMemcpy(t.data(), dt, groups * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(m.data(), dm, groups * 4, cudaMemcpyDeviceToHost);
    unsigned long long s = 0; int c = 0;
    for (int k = 0; k < groups; ++k) { s += t[k]; c += m[k] * (k % 7 + 1); }
    printf("tops %llu members %d\n", s, c);
}
