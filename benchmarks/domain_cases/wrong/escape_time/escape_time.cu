// Escape-time fractals: Mandelbrot set, or a Julia set of a constant. Reads no memory.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct View { double x0, y0, dx, dy; };

__global__ void escape(unsigned short *out, int w, int h, View v, bool julia, double cr, double ci, int limit, double bail)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= w || py >= h) return;
    double x = v.x0 + px * v.dx, y = v.y0 + py * v.dy;
    double zr = x, zi = y, kr = julia ? cr : x, ki = julia ? ci : y;
    int it = 0;
    while (it < limit && zr * zr + zi * zi <= bail) {
        double t = zr * zr - zi * zi + kr;
        zi = 2 * zr * zi + ki;
        zr = t;
        ++it;
    }
    out[py * w + px] = (unsigned short)it;
}

int main()
{
    const int w = 96, h = 64;
    std::vector<unsigned short> o(w * h);
    unsigned short *d;
    cudaMalloc(&d, w * h * sizeof(unsigned short));
    View v{-2.25, -1.25, 3.0 / 96, 2.5 / 64};
    escape<<<dim3(w / 16, h / 8), dim3(16, 8)>>>(d, w, h, v, false, 0.0, 0.0, 64, 4.0);
    cudaMemcpy(o.data(), d, w * h * sizeof(unsigned short), cudaMemcpyDeviceToHost);
    long s = 0, in = 0;
    for (auto i : o) { s += i; in += i == 64; }
    printf("iterations %ld inside %ld\n", s, in);
}
