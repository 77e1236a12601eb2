// A warp a query; distance and index packed in one unsigned, whose minimum is the author's choice, by __reduce_min_sync.
// baseline: fingerprints/fingerprints.cu
// @requires nq > 0 && nd > 0 && nd <= 4194304 && gridDim.x * blockDim.x >= nq && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(nq, 4)) block=(128) args=(query, db, who, how_far, nq, nd)
__global__ void fast(const uint64_t* __restrict__ query, const uint64_t* __restrict__ db, int* __restrict__ who, int* __restrict__ how_far, int nq, int nd)
{
    const int q = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (q >= nq) return;
    uint64_t mine[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; ++w) mine[w] = query[q * WORDS + w];
    unsigned key = 0xffffffffu;
    for (int j = lane; j < nd; j += 32) {
        unsigned d = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) d += __popcll(mine[w] ^ db[j * WORDS + w]);
        key = min(key, d << 22 | (unsigned)j);               // d <= 256, j < 2^22
    }
    key = __reduce_min_sync(0xffffffffu, key);
    if (lane == 0) { who[q] = (int)(key & 0x3fffffu); how_far[q] = (int)(key >> 22); }
}
