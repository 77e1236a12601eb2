// A thread a segment still, but loads four integers at a time between a scalar head up to a multiple of four and a scalar tail.
// baseline: segment_range/segment_range.cu
// @requires segments > 0 && gridDim.x * blockDim.x >= segments && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @requires aligned(values, 16)
// @launch fast grid=(ceil_div(segments, 32)) block=(32) args=(values, offsets, range, segments)
__global__ void fast(const int* __restrict__ values, const int* __restrict__ offsets, int2* __restrict__ range, int segments)
{
    const int s = blockIdx.x * 32 + threadIdx.x;
    if (s >= segments) return;
    int lo = INT_MAX, hi = INT_MIN;
    int i = offsets[s];
    const int end = offsets[s + 1];
    for (; i < end && (i & 3); ++i) { lo = min(lo, values[i]); hi = max(hi, values[i]); }
    for (; i < end && end - i >= 4; i += 4) {
        const int4 v = *reinterpret_cast<const int4*>(values + i);
        lo = min(min(lo, v.x), min(v.y, min(v.z, v.w)));
        hi = max(max(hi, v.x), max(v.y, max(v.z, v.w)));
    }
    for (; i < end; ++i) { lo = min(lo, values[i]); hi = max(hi, values[i]); }
    range[s] = make_int2(lo, hi);
}
