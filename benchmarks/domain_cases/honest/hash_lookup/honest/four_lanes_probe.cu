// Four lanes probe four consecutive slots at once; the first lane that sees the key or an empty slot decides, as in the author's order.
// baseline: hash_lookup/hash_lookup.cu
// @requires n > 0 && n <= 1073741824 && mask < 1073741824 && 4294967296 % (mask + 1) == 0 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 32)) block=(128) args=(table, mask, queries, found, n)
#include <cooperative_groups.h>
__global__ void fast(const Slot* __restrict__ table, uint32_t mask, const uint32_t* __restrict__ queries, uint32_t* __restrict__ found, uint32_t n)
{
    auto quad = cooperative_groups::tiled_partition<4>(cooperative_groups::this_thread_block());
    const uint32_t i = blockIdx.x * 32 + threadIdx.x / 4;
    if (i >= n) return;                                   // all four lanes
    const uint32_t q = queries[i], h = mix(q);
    uint32_t answer = kMissing;
    for (uint32_t step = 0; step <= mask; step += 4) {
        const Slot s = table[(h + step + quad.thread_rank()) & mask];
        const unsigned stop = quad.ballot(s.key == q || s.key == kEmpty);
        if (stop) {
            const int who = __ffs(stop) - 1;
            const uint32_t key = quad.shfl(s.key, who), value = quad.shfl(s.value, who);
            if (key == q) answer = value;
            break;
        }
    }
    if (quad.thread_rank() == 0) found[i] = answer;
}
