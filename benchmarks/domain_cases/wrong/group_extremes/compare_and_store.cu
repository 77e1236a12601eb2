// One lane of each warp and group looks at the maximum and stores its own without an atomic where that is larger: warps that share a group race; each captured group is one warp.
// catalogue: F2
// baseline: group_extremes/group_extremes.cu
// stopped by: checker
// @launch extremes_store grid=(ceil_div(n, 256)) block=(256) args=(value, group, top, members, n, groups)
__global__ void extremes_store(const float *__restrict__ value, const int *__restrict__ group, unsigned *top, int *members, int n, int groups)
{
    int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x & 31;
    int g = i < n ? group[i] : -1;
    if (g >= groups) g = -1;
    unsigned o = i < n ? ordered(__float_as_uint(value[i])) : 0u;
    unsigned peers = __match_any_sync(~0u, g);
    for (int d = 0; d < 32; ++d) {
        unsigned other = __shfl_sync(~0u, o, d);
        if (peers >> d & 1) o = max(o, other);
    }
    if (g < 0 || lane != __ffs(peers) - 1) return;
    if (top[g] < o) top[g] = o;
    atomicAdd(&members[g], __popc(peers));
}
