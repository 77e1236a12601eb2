// Of the threads that have a hit, a coalesced group's leader reserves places for all (warp-aggregated atomics by cooperative groups).
// baseline: collect_hits/collect_hits.cu
// @requires length > 0 && channels > 0 && gridDim.x * blockDim.x >= length && gridDim.y >= channels && gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(length, 128), channels) block=(128) args=(samples, hits, n_hits, length, threshold)
#include <cooperative_groups.h>
__global__ void fast(const short* __restrict__ samples, Hit* hits, int* n_hits, int length, short threshold)
{
    const int t = blockIdx.x * 128 + threadIdx.x, c = blockIdx.y;
    if (t >= length) return;
    const short s = samples[c * length + t];
    if (s > threshold) {
        const auto with_hit = cooperative_groups::coalesced_threads();
        int base = 0;
        if (with_hit.thread_rank() == 0) base = atomicAdd(n_hits, (int)with_hit.size());
        hits[with_hit.shfl(base, 0) + with_hit.thread_rank()] = Hit{c, t, s - threshold};
    }
}
