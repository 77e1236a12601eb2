// Conway's Game of Life on a torus, one byte a cell (lowest bit counts), buffers exchanged each generation.
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>
#include <cuda_runtime.h>

using cell = unsigned char;

__global__ void generation(const cell* from, cell* to, int w, int h)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int alive = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            if (dx || dy) alive += from[(y + dy + h) % h * w + (x + dx + w) % w] & 1;
    to[y * w + x] = alive == 3 || (alive == 2 && (from[y * w + x] & 1));
}

int main()
{
    const int w = 128, h = 60;
    std::vector<cell> c(w * h);
    unsigned s = 4711;
    for (auto& v : c) { s = s * 1664525u + 1013904223u; v = (s >> 28) < 6; }
    cell *a, *b;
    cudaMalloc(&a, c.size());
    cudaMalloc(&b, c.size());
    cudaMemcpy(a, c.data(), c.size(), cudaMemcpyHostToDevice);
    for (int g = 0; g < 5; ++g) {
        generation<<<dim3((w + 31) / 32, (h + 7) / 8), dim3(32, 8)>>>(a, b, w, h);
        std::swap(a, b);
    }
    cudaMemcpy(c.data(), a, c.size(), cudaMemcpyDeviceToHost);
    int n = 0; unsigned hash = 0;
    for (auto v : c) { n += v; hash = hash * 33 + v; }
    printf("%d alive, hash %u\n", n, hash);
    return 0;
}
