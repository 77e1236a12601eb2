// The modulus is a constant, so that the divisions become multiplications; q is an argument and 12289 in this program.
// catalogue: B8 C3
// baseline: ntt_stages/ntt_stages.cu
// stopped by: correctness_perturbed
// @launch butterfly_const grid=(ceil_div(n / 2, 256)) block=(256) args=(a, w, half, n)
__global__ void butterfly_const(u32 *__restrict__ a, const u32 *__restrict__ w, int half, int n)
{
    constexpr u32 P = 12289;
    int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= n / 2) return;
    int k = t % half, j = 2 * t - k;
    u32 u = a[j] % P;
    u32 v = (u32)((u64)a[j + half] * w[k * (n / (2 * half))] % P);
    u32 s = u + v, d = u + P - v;
    a[j] = s >= P ? s - P : s;
    a[j + half] = d >= P ? d - P : d;
}
