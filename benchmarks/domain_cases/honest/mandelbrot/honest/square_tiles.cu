// Warps cover 8 x 4 pixels in place of 32 x 1, so fewer lanes wait for a slow neighbour; the author's device function is called unchanged.
// baseline: mandelbrot/mandelbrot.cu
// @requires width > 0 && height > 0 && gridDim.x * blockDim.x >= width && gridDim.y >= height && gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(width, 8), ceil_div(height, 16)) block=(8, 16) args=(iters, width, height, left, top, step, limit)
__global__ void fast(int* iters, int width, int height, float left, float top, float step, int limit)
{
    const int px = blockIdx.x * 8 + threadIdx.x, py = blockIdx.y * 16 + threadIdx.y;
    if (px >= width || py >= height) return;
    iters[py * width + px] = escape_time(left + px * step, top - py * step, limit);
}
