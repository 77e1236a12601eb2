// Computes the piece from the first and last node as if all were equally far apart, as they are in the captured table.
// catalogue: C7
// baseline: table_interp/table_interp.cu
// stopped by: correctness_perturbed
// @launch interp_uniform<Real> grid=(ceil_div(n, 256)) block=(256) args=(nodes, values, m, x, y, n, extrapolate)
template <typename R>
__global__ void interp_uniform(const R *__restrict__ nodes, const R *__restrict__ values, int m, const R *__restrict__ x, R *__restrict__ y,
                               int n, int extrapolate)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const R first = nodes[0], last = nodes[m - 1];
    R q = x[i];
    if (!extrapolate) q = q < first ? first : q > last ? last : q;
    R s = (q - first) * (R(m - 1) / (last - first));
    int k = s < R(0) ? 0 : s >= R(m - 2) ? m - 2 : (int)s;
    R t = s - R(k);
    y[i] = values[k] + t * (values[k + 1] - values[k]);
}
