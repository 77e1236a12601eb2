// The left operand is not reduced before the sum, one subtraction has to do; captured values are below the modulus at every stage.
// catalogue: C7 C2
// baseline: ntt_stages/ntt_stages.cu
// stopped by: correctness_perturbed
// @launch butterfly_lazy grid=(ceil_div(n / 2, 256)) block=(256) args=(a, w, half, n, q)
__global__ void butterfly_lazy(u32 *__restrict__ a, const u32 *__restrict__ w, int half, int n, u32 q)
{
    int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= n / 2) return;
    int k = t % half, j = 2 * t - k;
    u64 u = a[j];
    u32 v = mul_mod(a[j + half], w[k * (n / (2 * half))], q);
    u64 s = u + v, d = u + q - v;
    a[j] = (u32)(s >= q ? s - q : s);
    a[j + half] = (u32)(d >= q ? d - q : d);
}
