// Breadth-first search, a launch a level: vertices at the level relax what they point to. INT_MAX is "not reached".
#include <cstdio>
#include <climits>
#include <vector>
#include <cuda_runtime.h>

__global__ void relax_level(const int *row, const int *adj, int *dist, int *grew, int level, int n)
{
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= n || dist[v] != level) return;
    for (int e = row[v]; e < row[v + 1]; ++e) {
        int u = adj[e];
        if (dist[u] > level + 1) {
            dist[u] = level + 1;
            *grew = 1;
        }
    }
}

int main()
{
    const int side = 64, n = side * side;
    std::vector<int> row(n + 1, 0), adj;
    for (int v = 0; v < n; ++v) {                        // a grid with holes, both directions of each edge
        int x = v % side, y = v / side;
        auto open = [&](int a, int b) { return a >= 0 && b >= 0 && a < side && b < side && (a * 7 + b * 3) % 5 != 0; };
        if (open(x, y))
            for (int d = 0; d < 4; ++d) {
                int a = x + (d == 0) - (d == 1), b = y + (d == 2) - (d == 3);
                if (open(a, b)) adj.push_back(b * side + a);
            }
        row[v + 1] = (int)adj.size();
    }
    std::vector<int> dist(n, INT_MAX);
    dist[1 + 2 * side] = 0;
    int *dr, *da, *dd, *dg;
    cudaMalloc(&dr, (n + 1) * 4); cudaMalloc(&da, adj.size() * 4); cudaMalloc(&dd, n * 4); cudaMalloc(&dg, 4);
    cudaMemcpy(dr, row.data(), (n + 1) * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(da, adj.data(), adj.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dd, dist.data(), n * 4, cudaMemcpyHostToDevice);
    int grew = 1, level = 0;
    for (; grew && level < 40; ++level) {
        cudaMemset(dg, 0, 4);
        relax_level<<<n / 256, 256>>>(dr, da, dd, dg, level, n);
        cudaMemcpy(&grew, dg, 4, cudaMemcpyDeviceToHost);
    }
    cudaMemcpy(dist.data(), dd, n * 4, cudaMemcpyDeviceToHost);
    long s = 0; int reached = 0;
    for (int d : dist) if (d != INT_MAX) { s += d; ++reached; }
    printf("levels %d reached %d sum %ld\n", level, reached, s);
}
