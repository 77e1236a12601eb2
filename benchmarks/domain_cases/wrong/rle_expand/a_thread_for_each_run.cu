// Each run writes its own outputs, so that those before the first start stay unwritten; the captured first run starts at 0.
// catalogue: B10 C7
// baseline: rle_expand/rle_expand.cu
// stopped by: correctness_perturbed
// @launch expand_runs<Symbol> grid=(ceil_div(runs, 8)) block=(256) args=(symbols, starts, runs, out, total)
template <typename S>
__global__ void expand_runs(const S *__restrict__ symbols, const int *__restrict__ starts, int runs, S *__restrict__ out, int total)
{
    int r = blockIdx.x * 8 + threadIdx.x / 32;
    if (r >= runs) return;
    int e = r + 1 < runs ? min(starts[r + 1], total) : total;
    S s = symbols[r];
    for (int i = max(starts[r], 0) + threadIdx.x % 32; i < e; i += 32) out[i] = s;
}
