// Searches for the run from the left and stops at the first one that starts at i, so that of runs with one start (empty ones) the first wins; no captured run is empty.
// catalogue: C7
// baseline: rle_expand/rle_expand.cu
// stopped by: correctness_perturbed
// @launch expand_lower<Symbol> grid=(ceil_div(total, 256)) block=(256) args=(symbols, starts, runs, out, total)
template <typename S>
__global__ void expand_lower(const S *__restrict__ symbols, const int *__restrict__ starts, int runs, S *__restrict__ out, int total)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= total) return;
    int lo = 0, n = runs;                        // first run that starts at or behind i
    while (n > 0) {
        int half = n >> 1;
        bool right = starts[lo + half] < i;
        lo = right ? lo + half + 1 : lo;
        n = right ? n - half - 1 : half;
    }
    if (lo < runs && starts[lo] == i) ++lo;
    out[i] = lo > 0 ? symbols[lo - 1] : S(0);
}
