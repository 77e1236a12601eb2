// Each warp searches once, for its first query, and the others walk on upwards from there: right for ascending queries only, as captured.
// catalogue: C7
// baseline: table_interp/table_interp.cu
// stopped by: correctness_perturbed
// @launch interp_walk<Real> grid=(ceil_div(n, 256)) block=(256) args=(nodes, values, m, x, y, n, extrapolate)
template <typename R>
__global__ void interp_walk(const R *__restrict__ nodes, const R *__restrict__ values, int m, const R *__restrict__ x, R *__restrict__ y,
                            int n, int extrapolate)
{
    int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x & 31;
    R q = x[min(i, n - 1)];
    int lo = 0, hi = m - 2;
    if (lane == 0)
        while (lo < hi) {
            int mid = (lo + hi + 1) >> 1;
            if (nodes[mid] <= q) lo = mid;
            else hi = mid - 1;
        }
    lo = __shfl_sync(~0u, lo, 0);
    if (i >= n) return;
    while (lo < m - 2 && nodes[lo + 1] <= q) ++lo;
    R r;
    if (!extrapolate && q <= nodes[0]) r = values[0];
    else if (!extrapolate && q >= nodes[m - 1]) r = values[m - 1];
    else {
        R a = nodes[lo], t = (q - a) / (nodes[lo + 1] - a);
        r = values[lo] + t * (values[lo + 1] - values[lo]);
    }
    y[i] = r;
}
