// Scans the whole row and takes the prefix before the head away again, which cancels where a segment before held large values; captured values are all of one size.
// catalogue: C4 C7
// baseline: seg_scan/seg_scan.cu
// stopped by: correctness_perturbed
// @launch scan_subtract grid=(gridDim.x) block=(128) args=(values, heads, out, cols)
__global__ void scan_subtract(const float *__restrict__ values, const int *__restrict__ heads, float *out, int cols)
{
    __shared__ float whole[4], prefix[129];
    __shared__ unsigned flags[4];
    int t = threadIdx.x, lane = t & 31, w = t >> 5;
    bool in = t < cols;
    float x = in ? values[blockIdx.x * cols + t] : 0.f;
    unsigned b = __ballot_sync(~0u, in && heads[blockIdx.x * cols + t] != 0);
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        float y = __shfl_up_sync(~0u, x, d);
        if (lane >= d) x += y;
    }
    if (lane == 31) { whole[w] = x; flags[w] = b; }
    __syncthreads();
    for (int k = 0; k < w; ++k) x += whole[k];
    prefix[t + 1] = x;
    if (t == 0) prefix[0] = 0.f;
    __syncthreads();
    unsigned m = flags[w] & (0xffffffffu >> (31 - lane));
    int k = w;
    while (m == 0 && k > 0) m = flags[--k];
    int head = m ? 32 * k + 31 - __clz((int)m) : 0;
    if (in) out[blockIdx.x * cols + t] = x - prefix[head];
}
