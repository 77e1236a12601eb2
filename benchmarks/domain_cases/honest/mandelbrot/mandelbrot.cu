// Escape times of the Mandelbrot set. The kernel reads no memory at all.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__device__ int escape_time(float cx, float cy, int limit)
{
    float x = 0.0f, y = 0.0f;
    int k = 0;
    while (k < limit && x * x + y * y <= 4.0f) {
        float t = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = t;
        k++;
    }
    return k;
}

__global__ void mandelbrot(int *iters, int width, int height, float left, float top, float step, int limit)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y;
    if (px < width && py < height)
        iters[py * width + px] = escape_time(left + px * step, top - py * step, limit);
}

int main()
{
    const int w = 150, h = 96;
    int *d;
    cudaMalloc(&d, w * h * sizeof(int));
    dim3 grid((w + 127) / 128, h);
    mandelbrot<<<grid, 128>>>(d, w, h, -2.1f, 1.2f, 0.025f, 96);
    std::vector<int> it(w * h);
    cudaMemcpy(it.data(), d, w * h * sizeof(int), cudaMemcpyDeviceToHost);
    long sum = 0, in = 0;
    for (int v : it) { sum += v; in += v == 96; }
    printf("iterations %ld, inside %ld\n", sum, in);
    cudaFree(d);
    return 0;
}
