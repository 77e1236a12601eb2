// Raises tiny pivots by fmaxf, so that negative ones become +tiny: all captured pivots are positive and large.
// catalogue: C7
// baseline: thomas/thomas.cu
// stopped by: correctness_perturbed
// @launch thomas_fmax grid=(ceil_div(batch, 128)) block=(128) args=(lower, diag, upper, d, work, m, batch, tiny)
__global__ void thomas_fmax(const float *__restrict__ lower, const float *__restrict__ diag, const float *__restrict__ upper,
                            float *__restrict__ d, float *__restrict__ work, int m, int batch, float tiny)
{
    int s = blockIdx.x * 128 + threadIdx.x;
    if (s >= batch) return;
    float w = 0.f, x = 0.f;
    for (int k = 0; k < m; ++k) {
        float l = k ? lower[AT(k)] : 0.f;
        float pivot = fmaxf(diag[AT(k)] - l * w, tiny);
        x = (d[AT(k)] - l * x) / pivot;
        w = upper[AT(k)] / pivot;
        work[AT(k)] = w;
        d[AT(k)] = x;
    }
    for (int k = m - 2; k >= 0; --k) d[AT(k)] = x = d[AT(k)] - work[AT(k)] * x;
}
