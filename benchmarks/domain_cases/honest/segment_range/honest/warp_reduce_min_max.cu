// A warp a segment; the hardware's __reduce_min_sync and __reduce_max_sync (sm_80) finish it.
// baseline: segment_range/segment_range.cu
// @requires segments > 0 && gridDim.x * blockDim.x >= segments && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(segments, 8)) block=(256) args=(values, offsets, range, segments)
__global__ void fast(const int* __restrict__ values, const int* __restrict__ offsets, int2* __restrict__ range, int segments)
{
    const int s = blockIdx.x * 8 + threadIdx.x / 32;
    if (s >= segments) return;
    int lo = INT_MAX, hi = INT_MIN;
    const int begin = offsets[s], end = offsets[s + 1];
    for (long long i = (long long)begin + (threadIdx.x & 31); i < end; i += 32) {
        const int v = values[i];
        lo = min(lo, v);
        hi = max(hi, v);
    }
    lo = __reduce_min_sync(0xffffffffu, lo);
    hi = __reduce_max_sync(0xffffffffu, hi);
    if ((threadIdx.x & 31) == 0) range[s] = make_int2(lo, hi);
}
