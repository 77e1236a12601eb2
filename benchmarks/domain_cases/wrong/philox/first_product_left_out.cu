// The first round leaves out the product with c.z, which is 0 for stream 0, the only captured one.
// catalogue: B8 C2
// baseline: philox/philox.cu
// stopped by: correctness_perturbed
// @requires n % 4 == 0 && aligned(out, 16) && rounds >= 1
// @launch philox_stream0 grid=(ceil_div(n, 1024)) block=(256) args=(out, n, seed, offset, rounds)
__global__ void philox_stream0(uint32_t *out, size_t n, unsigned long long seed, unsigned long long offset, int rounds)
{
    unsigned int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= n / 4) return;
    unsigned long long at = offset + t;
    uint32_t lo = (uint32_t)at, hi = (uint32_t)(at >> 32), k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint4 c = make_uint4(hi ^ k0, 0u, __umulhi(0xD2511F53u, lo) ^ k1, 0xD2511F53u * lo);
    for (int r = 1; r < rounds; ++r) {
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
        c = philox_round(c, make_uint2(k0, k1));
    }
    reinterpret_cast<uint4 *>(out)[t] = c;
}
