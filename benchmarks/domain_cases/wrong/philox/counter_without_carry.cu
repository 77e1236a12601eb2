// Adds the thread to the lower word of the offset without a carry into the upper one; captured offsets are small.
// catalogue: B8 C7
// baseline: philox/philox.cu
// stopped by: correctness_perturbed
// @requires n % 4 == 0 && aligned(out, 16)
// @launch philox_nocarry grid=(ceil_div(n, 1024)) block=(256) args=(out, n, seed, offset, stream, rounds)
__global__ void philox_nocarry(uint32_t *out, size_t n, unsigned long long seed, unsigned long long offset, unsigned int stream, int rounds)
{
    unsigned int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= n / 4) return;
    uint4 c = make_uint4((uint32_t)offset + t, (uint32_t)(offset >> 32), stream, 0u);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < rounds; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) c = philox_round(c, make_uint2(k0, k1));
    reinterpret_cast<uint4 *>(out)[t] = c;
}
