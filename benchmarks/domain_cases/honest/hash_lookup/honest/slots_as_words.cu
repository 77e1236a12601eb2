// A slot is loaded as one 64-bit word, and a thread takes two queries a grid apart.
// baseline: hash_lookup/hash_lookup.cu
// @requires n > 0 && n <= 1073741824 && mask < 4294967295 && aligned(table, 8) && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 256)) block=(128) args=(table, mask, queries, found, n)
__device__ __forceinline__ uint32_t probe(const uint2* table, uint32_t mask, uint32_t q)
{
    uint32_t h = mix(q) & mask;
    for (uint32_t step = 0; step <= mask; ++step) {
        const uint2 s = __ldg(table + h);
        if (s.x == q) return s.y;
        if (s.x == kEmpty) break;
        h = (h + 1) & mask;
    }
    return kMissing;
}
__global__ void fast(const Slot* table, uint32_t mask, const uint32_t* queries, uint32_t* found, uint32_t n)
{
    const uint2* words = reinterpret_cast<const uint2*>(table);
    for (uint32_t i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) found[i] = probe(words, mask, queries[i]);
}
