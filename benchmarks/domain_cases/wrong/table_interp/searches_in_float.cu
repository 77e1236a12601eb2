// Searches and takes the difference in float: the captured nodes are exact there; close nodes far from zero fall together.
// catalogue: C4 C7
// baseline: table_interp/table_interp.cu
// stopped by: correctness_perturbed
// @launch interp_float<Real> grid=(ceil_div(n, 128)) block=(128) args=(nodes, values, m, x, y, n, extrapolate)
template <typename R>
__global__ void interp_float(const R *__restrict__ nodes, const R *__restrict__ values, int m, const R *__restrict__ x, R *__restrict__ y,
                             int n, int extrapolate)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    R q = x[i];
    if (!extrapolate) {
        if (q <= nodes[0]) { y[i] = values[0]; return; }
        if (q >= nodes[m - 1]) { y[i] = values[m - 1]; return; }
    }
    float qf = (float)q;
    int lo = 0, hi = m - 2;
    while (lo < hi) {
        int mid = (lo + hi + 1) >> 1;
        if ((float)nodes[mid] <= qf) lo = mid;
        else hi = mid - 1;
    }
    R a = nodes[lo];
    R t = (q - a) / R((float)nodes[lo + 1] - (float)a);
    y[i] = values[lo] + t * (values[lo + 1] - values[lo]);
}
