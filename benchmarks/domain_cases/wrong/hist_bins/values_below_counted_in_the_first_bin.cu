// Tests the bin only after a division that cuts towards zero, so that up to width - 1 values below the first one are counted; none is in the captured data.
// catalogue: C7
// baseline: hist_bins/hist_bins.cu
// stopped by: correctness_perturbed
// @requires bins <= 1024
// @launch hist_trunc grid=(ceil_div(n, 1024)) block=(256) args=(values, n, first, width, counts, bins)
__global__ void hist_trunc(const int *__restrict__ values, int n, int first, int width, unsigned long long *counts, int bins)
{
    __shared__ unsigned int h[1024];
    for (int b = threadIdx.x; b < bins; b += 256) h[b] = 0;
    __syncthreads();
    int e = min(n, (int)(blockIdx.x + 1) * 1024);
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < e; i += 256) {
        long long b = ((long long)values[i] - first) / width;
        if (b >= 0 && b < bins) atomicAdd(&h[b], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += 256)
        if (h[b]) atomicAdd(&counts[b], (unsigned long long)h[b]);
}
