// The hits of a block are summed by warp reductions and a shared counter before the one global atomic.
// baseline: throw_darts/throw_darts.cu
// @requires gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1 && per_thread <= 1000000
// @launch fast grid=(ceil_div(gridDim.x * blockDim.x, 256)) block=(256) args=(seed, per_thread, inside, gridDim.x * blockDim.x)
__global__ void fast(unsigned seed, int per_thread, u64* inside, unsigned streams)
{
    __shared__ unsigned all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    const unsigned id = blockIdx.x * 256 + threadIdx.x;
    unsigned hits = 0;
    if (id < streams) {
        unsigned s = scramble(seed + id);
        for (int k = 0; k < per_thread; ++k) {
            const unsigned s1 = s * 1664525u + 1013904223u;
            s = s1 * 1664525u + 1013904223u;
            const unsigned x = s1 >> 16, y = s >> 16, xx = x * x, yy = y * y;
            hits += yy < 4294836225u && xx < 4294836225u - yy;      // no sum, so 32 bits are enough
        }
    }
    hits = __reduce_add_sync(0xffffffffu, hits);
    if ((threadIdx.x & 31) == 0) atomicAdd(&all, hits);
    __syncthreads();
    if (threadIdx.x == 0 && all) atomicAdd(inside, (u64)all);
}
