// Looks among the 64 runs that begin with the block's first one; captured runs are at least six long, so that 256 outputs hold fewer.
// catalogue: C7
// baseline: rle_expand/rle_expand.cu
// stopped by: correctness_perturbed
// @launch expand_window<Symbol> grid=(ceil_div(total, 256)) block=(256) args=(symbols, starts, runs, out, total)
template <typename S>
__global__ void expand_window(const S *__restrict__ symbols, const int *__restrict__ starts, int runs, S *__restrict__ out, int total)
{
    __shared__ int base, window[64];
    int i = blockIdx.x * 256 + threadIdx.x;
    if (threadIdx.x == 0) {
        int lo = 0, hi = runs;
        while (lo < hi) {
            int mid = (lo + hi) >> 1;
            if (starts[mid] <= i) lo = mid + 1;
            else hi = mid;
        }
        base = lo;
    }
    __syncthreads();
    if (threadIdx.x < 64) window[threadIdx.x] = base + threadIdx.x < runs ? starts[base + threadIdx.x] : 0x7fffffff;
    __syncthreads();
    if (i >= total) return;
    int k = 0;
#pragma unroll
    for (int d = 32; d > 0; d >>= 1)
        if (window[k + d - 1] <= i) k += d;
    k += base;
    out[i] = k > 0 ? symbols[k - 1] : S(0);
}
