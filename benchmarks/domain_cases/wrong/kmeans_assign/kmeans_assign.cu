// Assignment step of k-means: a point keeps its label unless another centre with members is strictly nearer.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void assign(const float *__restrict__ points, const float *__restrict__ centres, const int *__restrict__ members, int *label,
                       float *distance, int n, int k, int dim)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    auto squared = [&](int c) {
        float s = 0.f;
        for (int d = 0; d < dim; ++d) {
            float t = points[i * dim + d] - centres[c * dim + d];
            s += t * t;
        }
        return s;
    };
    int best = label[i];
    float near = best >= 0 && best < k ? squared(best) : 3.4e38f;
    for (int c = 0; c < k; ++c) {
        if (members[c] == 0) continue;
        float s = squared(c);
        if (s < near) { near = s; best = c; }
    }
    label[i] = best;
    distance[i] = near;
}

int main()
{
    const int n = 6000, k = 12, dim = 4;
    std::vector<float> p(n * dim), c(k * dim), dist(n);
    std::vector<int> m(k), l(n, -1);
    unsigned s = 7;
    auto rnd = [&] { s = s * 1664525u + 1013904223u; return (s >> 8) / 16777216.f; };
    for (auto &v : c) v = 4.f * rnd() - 2.f;
    for (int i = 0; i < n; ++i) for (int d = 0; d < dim; ++d) p[i * dim + d] = c[i % k * dim + d] + rnd() - 0.5f;
    for (int j = 0; j < k; ++j) m[j] = n / k;
    float *dp, *dc, *dd; int *dm, *dl;
    cudaMalloc(&dp, p.size() * 4); cudaMalloc(&dc, c.size() * 4); cudaMalloc(&dd, n * 4); cudaMalloc(&dm, k * 4); cudaMalloc(&dl, n * 4);
    cudaMemcpy(dp, p.data(), p.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dc, c.data(), c.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dm, m.data(), k * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dl, l.data(), n * 4, cudaMemcpyHostToDevice);
    assign<<<(n + 127) / 128, 128>>>(dp, dc, dm, dl, dd, n, k, dim);
    cudaMemcpy(l.data(), dl, n * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(dist.data(), dd, n * 4, cudaMemcpyDeviceToHost);
    long ls = 0; double inertia = 0;
    for (int i = 0; i < n; ++i) { ls += l[i] * (i % 13 + 1); inertia += dist[i]; }
    printf("labels %ld inertia %.4f\n", ls, inertia);
}
