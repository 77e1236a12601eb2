// Four threads share a stream: each jumps ahead in the generator by repeated squaring of its affine step and throws a quarter of the darts.
// baseline: throw_darts/throw_darts.cu
// @requires gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1 && per_thread >= 0 && per_thread <= 1000000
// @launch fast grid=(ceil_div(gridDim.x * blockDim.x, 32)) block=(128) args=(seed, per_thread, inside, gridDim.x * blockDim.x)
__global__ void fast(unsigned seed, int per_thread, u64* inside, unsigned streams)
{
    const unsigned id = blockIdx.x * 32 + threadIdx.x / 4;
    const int part = threadIdx.x & 3;
    const int begin = (int)((long long)per_thread * part / 4), end = (int)((long long)per_thread * (part + 1) / 4);
    unsigned hits = 0;
    if (id < streams) {
        unsigned mul = 1u, add = 0u, a = 1664525u, c = 1013904223u;
        for (unsigned left = 2u * begin; left; left >>= 1) {        // step^left: x -> mul x + add
            if (left & 1u) { add = a * add + c; mul *= a; }
            c = (a + 1u) * c;
            a *= a;
        }
        unsigned s = mul * scramble(seed + id) + add;
        for (int k = begin; k < end; ++k) {
            s = s * 1664525u + 1013904223u;
            const u64 x = s >> 16;
            s = s * 1664525u + 1013904223u;
            const u64 y = s >> 16;
            if (x * x + y * y < 4294836225ull) ++hits;
        }
    }
    for (int d = 16; d; d >>= 1) hits += __shfl_down_sync(0xffffffffu, hits, d);
    if ((threadIdx.x & 31) == 0 && hits) atomicAdd(inside, (u64)hits);
}
