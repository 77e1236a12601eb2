// k-means: assign every point (structure of arrays) to the closest centroid.
#include <cstdio>
#include <vector>
#include <limits>
#include <cuda_runtime.h>

template <int DIMS>
__global__ void assign(const float* __restrict__ pts, const float* __restrict__ cent, int* label, float* dist, int n, int k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best = INFINITY;
    int lab = -1;
    for (int c = 0; c < k; ++c) {
        float d = 0.f;
        for (int j = 0; j < DIMS; ++j) {
            float t = pts[j * n + i] - cent[c * DIMS + j];
            d += t * t;
        }
        if (d < best) { best = d; lab = c; }
    }
    label[i] = lab;
    dist[i] = best;
}

int main()
{
    const int n = 3000, k = 19, D = 4;
    std::vector<float> p(n * D), c(k * D), d(n);
    std::vector<int> l(n);
    unsigned x = 2463534242u;
    auto rnd = [&]() { x ^= x << 13; x ^= x >> 17; x ^= x << 5; return (x >> 8) / 16777216.f; };
    for (float& v : p) v = rnd();
    for (float& v : c) v = rnd();
    float *dp, *dc, *dd; int* dl;
    cudaMalloc(&dp, p.size() * 4); cudaMalloc(&dc, c.size() * 4); cudaMalloc(&dd, n * 4); cudaMalloc(&dl, n * 4);
    cudaMemcpy(dp, p.data(), p.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dc, c.data(), c.size() * 4, cudaMemcpyHostToDevice);
    assign<D><<<(n + 127) / 128, 128>>>(dp, dc, dl, dd, n, k);
    cudaMemcpy(l.data(), dl, n * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(d.data(), dd, n * 4, cudaMemcpyDeviceToHost);
    long s = 0; double inertia = 0;
    for (int i = 0; i < n; ++i) { s += l[i] * (long)(i % 17); inertia += d[i]; }
    printf("labels %ld inertia %.5f\n", s, inertia);
    return 0;
}
