// Reads the three coefficients once, from row 0: they are the same in all rows of a captured system.
// catalogue: C7 B8
// baseline: thomas/thomas.cu
// stopped by: correctness_perturbed
// @launch thomas_toeplitz grid=(ceil_div(batch, 128)) block=(128) args=(lower, diag, upper, d, work, m, batch, tiny)
__global__ void thomas_toeplitz(const float *__restrict__ lower, const float *__restrict__ diag, const float *__restrict__ upper,
                                float *__restrict__ d, float *__restrict__ work, int m, int batch, float tiny)
{
    int s = blockIdx.x * 128 + threadIdx.x;
    if (s >= batch) return;
    const float l = lower[AT(0)], c = diag[AT(0)], u = upper[AT(0)];
    float w = 0.f, x = 0.f;
    for (int k = 0; k < m; ++k) {
        float pivot = c - (k ? l * w : 0.f);
        if (fabsf(pivot) < tiny) pivot = copysignf(tiny, pivot);
        x = (d[AT(k)] - (k ? l * x : 0.f)) / pivot;
        w = u / pivot;
        work[AT(k)] = w;
        d[AT(k)] = x;
    }
    for (int k = m - 2; k >= 0; --k) d[AT(k)] = x = d[AT(k)] - work[AT(k)] * x;
}
