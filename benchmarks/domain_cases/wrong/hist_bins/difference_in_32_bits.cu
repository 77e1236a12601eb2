// Takes the difference in 32 bits, which runs over for values far from the first one and counts them; captured ones are near it.
// catalogue: C7
// baseline: hist_bins/hist_bins.cu
// stopped by: correctness_perturbed
// @requires bins <= 1024 && width > 0
// @launch hist_32 grid=(ceil_div(n, 1024)) block=(256) args=(values, n, first, width, counts, bins)
__global__ void hist_32(const int *__restrict__ values, int n, int first, int width, unsigned long long *counts, int bins)
{
    __shared__ unsigned int h[1024];
    for (int b = threadIdx.x; b < bins; b += 256) h[b] = 0;
    __syncthreads();
    int e = min(n, (int)(blockIdx.x + 1) * 1024);
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < e; i += 256) {
        int d = (int)((unsigned)values[i] - (unsigned)first);
        if (d >= 0 && d / width < bins) atomicAdd(&h[d / width], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += 256)
        if (h[b]) atomicAdd(&counts[b], (unsigned long long)h[b]);
}
