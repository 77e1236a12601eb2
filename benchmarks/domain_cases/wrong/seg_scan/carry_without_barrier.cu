// Reads the carry of earlier warps without a barrier where no head in the own warp stops it; captured rows have a head at the start of each warp, so no carry is read.
// catalogue: F8
// baseline: seg_scan/seg_scan.cu
// stopped by: checker
// @launch scan_carry grid=(gridDim.x) block=(128) args=(values, heads, out, cols)
__global__ void scan_carry(const float *__restrict__ values, const int *__restrict__ heads, float *out, int cols)
{
    __shared__ float last[4];
    __shared__ int any[4];
    int t = threadIdx.x, lane = t & 31, w = t >> 5;
    bool in = t < cols;
    float x = in ? values[blockIdx.x * cols + t] : 0.f;
    unsigned b = __ballot_sync(~0u, in && heads[blockIdx.x * cols + t] != 0);
    unsigned before = b & (0xffffffffu >> (31 - lane));
    int first = before ? 31 - __clz((int)before) : 0;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        float y = __shfl_up_sync(~0u, x, d);
        if (lane - d >= first) x += y;
    }
    if (lane == 31) { last[w] = x; any[w] = b != 0; }
    if (before == 0)
        for (int k = w - 1; k >= 0; --k) {
            x += last[k];
            if (any[k]) break;
        }
    if (in) out[blockIdx.x * cols + t] = x;
}
