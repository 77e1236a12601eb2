// Game of life where a cell's byte counts the generations it has lived, at most 255.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

typedef unsigned char Cell;

__device__ int alive(const Cell *g, int x, int y, int w, int h, bool torus)
{
    if (torus) {
        x = (x + w) % w;
        y = (y + h) % h;
    } else if (x < 0 || y < 0 || x >= w || y >= h)
        return 0;
    return g[y * w + x] != 0;
}

__global__ void generation(const Cell *in, Cell *out, int w, int h, bool torus)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int n = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) n += alive(in, x + dx, y + dy, w, h, torus);
    Cell c = in[y * w + x];
    if (c) out[y * w + x] = n == 2 || n == 3 ? (c < 255 ? c + 1 : 255) : 0;
    else out[y * w + x] = n == 3;
}

int main(int argc, char **argv)
{
    const int w = 128, h = 64;
    Cell *host = (Cell *)malloc(w * h), *a, *b;
    memset(host, 0, w * h);
    unsigned s = 1;
    for (int i = 0; i < w * h; i++) { s = s * 1103515245u + 12345u; host[i] = (s >> 16 & 3) == 0; }
    cudaMalloc(&a, w * h);
    cudaMalloc(&b, w * h);
    cudaMemcpy(a, host, w * h, cudaMemcpyHostToDevice);
    dim3 block(32, 8), grid(w / 32, h / 8);
    for (int g = 0; g < 6; g++) {
        generation<<<grid, block>>>(a, b, w, h, true);
        Cell *t = a; a = b; b = t;
    }
    cudaMemcpy(host, a, w * h, cudaMemcpyDeviceToHost);
    int cells = 0, years = 0;
    for (int i = 0; i < w * h; i++) { cells += host[i] != 0; years += host[i]; }
    printf("alive %d, generations lived %d\n", cells, years);
    return 0;
}
