// Looks for heads at multiples of eight only and scans eight elements by themselves, as heads stand nowhere else in the captured rows.
// catalogue: C7
// baseline: seg_scan/seg_scan.cu
// stopped by: correctness_perturbed
// @launch scan_eights grid=(gridDim.x) block=(128) args=(values, heads, out, cols)
__global__ void scan_eights(const float *__restrict__ values, const int *__restrict__ heads, float *out, int cols)
{
    __shared__ float total[16];
    __shared__ int head[16];
    int t = threadIdx.x, g = t >> 3, j = t & 7;
    bool in = t < cols;
    float x = in ? values[blockIdx.x * cols + t] : 0.f;
#pragma unroll
    for (int d = 1; d < 8; d *= 2) {
        float y = __shfl_up_sync(~0u, x, d, 8);
        if (j >= d) x += y;
    }
    if (j == 7) total[g] = x;
    if (j == 0) head[g] = in ? heads[blockIdx.x * cols + t] : 1;
    __syncthreads();
    float carry = 0.f;
    for (int k = g; k > 0 && head[k] == 0; --k) carry += total[k - 1];
    if (in) out[blockIdx.x * cols + t] = carry + x;
}
