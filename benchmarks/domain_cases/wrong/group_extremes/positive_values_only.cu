// Sets the top bit of every value's bits, right for positive ones only, as captured: among negative values the smallest wins.
// catalogue: C7
// baseline: group_extremes/group_extremes.cu
// stopped by: correctness_perturbed
// @launch extremes_pos grid=(ceil_div(n, 128)) block=(128) args=(value, group, top, members, n, groups)
__global__ void extremes_pos(const float *__restrict__ value, const int *__restrict__ group, unsigned *top, int *members, int n, int groups)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    unsigned g = (unsigned)group[i];
    if (g >= (unsigned)groups) return;
    atomicMax(&top[g], __float_as_uint(value[i]) | 0x80000000u);
    atomicAdd(&members[g], 1);
}
