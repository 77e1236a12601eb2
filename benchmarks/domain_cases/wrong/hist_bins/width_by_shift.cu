// Shifts by the lowest bit of the width in place of a division, right for powers of two only, as the captured 16.
// catalogue: B8 C3
// baseline: hist_bins/hist_bins.cu
// stopped by: correctness_perturbed
// @requires bins <= 1024 && width > 0
// @launch hist_shift grid=(ceil_div(n, 1024)) block=(256) args=(values, n, first, width, counts, bins)
__global__ void hist_shift(const int *__restrict__ values, int n, int first, int width, unsigned long long *counts, int bins)
{
    __shared__ unsigned int h[1024];
    const int shift = __ffs(width) - 1;
    for (int b = threadIdx.x; b < bins; b += 256) h[b] = 0;
    __syncthreads();
    int e = min(n, (int)(blockIdx.x + 1) * 1024);
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < e; i += 256) {
        long long b = ((long long)values[i] - first) >> shift;
        if (b >= 0 && b < bins) atomicAdd(&h[b], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += 256)
        if (h[b]) atomicAdd(&counts[b], (unsigned long long)h[b]);
}
