// Drops the guard of tiny pivots, which no captured system has.
// catalogue: C7 C2
// baseline: thomas/thomas.cu
// stopped by: correctness_perturbed
// @launch thomas_plain grid=(ceil_div(batch, 128)) block=(128) args=(lower, diag, upper, d, work, m, batch)
__global__ void thomas_plain(const float *__restrict__ lower, const float *__restrict__ diag, const float *__restrict__ upper,
                             float *__restrict__ d, float *__restrict__ work, int m, int batch)
{
    int s = blockIdx.x * 128 + threadIdx.x;
    if (s >= batch) return;
    float pivot = diag[AT(0)], w = upper[AT(0)] / pivot, x = d[AT(0)] / pivot;
    work[AT(0)] = w;
    d[AT(0)] = x;
    for (int k = 1; k < m; ++k) {
        float l = lower[AT(k)];
        pivot = diag[AT(k)] - l * w;
        x = (d[AT(k)] - l * x) / pivot;
        w = upper[AT(k)] / pivot;
        work[AT(k)] = w;
        d[AT(k)] = x;
    }
    for (int k = m - 2; k >= 0; --k) d[AT(k)] = x = d[AT(k)] - work[AT(k)] * x;
}
