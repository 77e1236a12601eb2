// Multiplies in 32 bits, right for moduli below 2^16 only; the captured modulus is 12289.
// catalogue: C4 C7
// baseline: ntt_stages/ntt_stages.cu
// stopped by: correctness_perturbed
// @launch butterfly32 grid=(ceil_div(n / 2, 256)) block=(256) args=(a, w, half, n, q)
__global__ void butterfly32(u32 *__restrict__ a, const u32 *__restrict__ w, int half, int n, u32 q)
{
    int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= n / 2) return;
    int k = t & (half - 1);
    int j = 2 * t - k;
    u32 u = a[j] % q;
    u32 v = a[j + half] * w[k * ((n / 2) / half)] % q;
    u32 s = u + v, d = u + q - v;
    a[j] = s >= q ? s - q : s;
    a[j + half] = d >= q ? d - q : d;
}
