// Persistent threads draw chunks of 32 pixels a warp from a counter in scratch, which evens out slow pixels; the iteration itself is the author's.
// baseline: mandelbrot/mandelbrot.cu
// @requires width > 0 && height > 0 && width * height <= 1073741824 && gridDim.x * blockDim.x >= width && gridDim.y >= height && gridDim.z * blockDim.y * blockDim.z == 1
// @scratch next bytes=4
// @launch start grid=(1) block=(1) args=(next)
// @launch fast grid=(16) block=(128) args=(iters, width, height, left, top, step, limit, next)
__global__ void start(unsigned* next) { *next = 0; }
__global__ void fast(int* iters, int width, int height, float left, float top, float step, int limit, unsigned* next)
{
    const unsigned lane = threadIdx.x & 31, all = (unsigned)width * (unsigned)height;
    for (;;) {
        unsigned first = 0;
        if (lane == 0) first = atomicAdd(next, 32u);
        first = __shfl_sync(0xffffffffu, first, 0);
        if (first >= all) break;
        const unsigned p = first + lane;
        if (p < all) {
            const int px = p % width, py = p / width;
            iters[p] = escape_time(left + px * step, top - py * step, limit);
        }
        __syncwarp();
    }
}
