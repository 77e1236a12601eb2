// A block reduces each run of one group in shared memory and stores the result without atomics: lost where a group goes on in another block or comes again; captured groups are 32 in a row.
// catalogue: F2 C7
// baseline: group_extremes/group_extremes.cu
// stopped by: correctness_perturbed
// @launch extremes_runs grid=(ceil_div(n, 256)) block=(256) args=(value, group, top, members, n, groups)
__global__ void extremes_runs(const float *__restrict__ value, const int *__restrict__ group, unsigned *top, int *members, int n, int groups)
{
    __shared__ unsigned s[256];
    __shared__ int gs[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    int g = i < n ? group[i] : -1;
    s[t] = i < n ? ordered(__float_as_uint(value[i])) : 0u;
    gs[t] = g;
    __syncthreads();
    if (g < 0 || g >= groups || (t > 0 && gs[t - 1] == g)) return;
    unsigned o = s[t];
    int k = t + 1;
    for (; k < 256 && gs[k] == g; ++k) o = max(o, s[k]);
    if (o > top[g]) top[g] = o;
    members[g] += k - t;
}
