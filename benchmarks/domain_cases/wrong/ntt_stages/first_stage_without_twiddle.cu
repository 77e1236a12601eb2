// Butterflies with k == 0 do not multiply, as the zeroth power of the root is 1; the author's kernel reads it from the table.
// catalogue: B8 C2
// baseline: ntt_stages/ntt_stages.cu
// stopped by: correctness_perturbed
// @launch butterfly_skip grid=(ceil_div(n / 2, 256)) block=(256) args=(a, w, half, n, q)
__global__ void butterfly_skip(u32 *__restrict__ a, const u32 *__restrict__ w, int half, int n, u32 q)
{
    int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= n / 2) return;
    int k = t % half, j = 2 * t - k;
    u32 u = a[j] % q, v = a[j + half];
    v = k == 0 ? v % q : mul_mod(v, w[k * (n / (2 * half))], q);
    u64 s = (u64)u + v, d = (u64)u + q - v;
    a[j] = (u32)(s >= q ? s - q : s);
    a[j + half] = (u32)(d >= q ? d - q : d);
}
