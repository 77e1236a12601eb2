// Scans each warp by itself without a carry: every captured row has a head at each multiple of 32.
// catalogue: C7 C2
// baseline: seg_scan/seg_scan.cu
// stopped by: correctness_perturbed
// @launch scan_warps grid=(gridDim.x) block=(128) args=(values, heads, out, cols)
__global__ void scan_warps(const float *__restrict__ values, const int *__restrict__ heads, float *out, int cols)
{
    int t = threadIdx.x, lane = t & 31;
    bool in = t < cols;
    float x = in ? values[blockIdx.x * cols + t] : 0.f;
    unsigned b = __ballot_sync(~0u, in && heads[blockIdx.x * cols + t] != 0);
    int first = 31 - __clz((int)(b & (0xffffffffu >> (31 - lane)) | 1u));
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        float y = __shfl_up_sync(~0u, x, d);
        if (lane - d >= first) x += y;
    }
    if (in) out[blockIdx.x * cols + t] = x;
}
