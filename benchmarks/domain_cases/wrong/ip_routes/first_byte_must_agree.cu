// Rules whose first byte differs are skipped before their mask is looked at, wrong for prefixes shorter than 8 bits, of which the captured table has none.
// catalogue: C7
// baseline: ip_routes/ip_routes.cu
// stopped by: correctness_perturbed
// @launch route_by_byte grid=(ceil_div(n_addr, 128)) block=(128) args=(addr, n_addr, net, len, hop, n_rules, missing, out)
__global__ void route_by_byte(const u32* __restrict__ addr, int n_addr, const u32* __restrict__ net, const u8* __restrict__ len,
                              const short* __restrict__ hop, int n_rules, int missing, int* __restrict__ out)
{
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n_addr) return;
    const u32 a = addr[i];
    int best = -1, which = -1;
    for (int r = 0; r < n_rules; ++r) {
        const u32 x = a ^ net[r];
        if (x >> 24) continue;
        const int l = len[r];
        if (l > 32 || l <= best) continue;
        if ((x & mask_of(l)) == 0) { best = l; which = r; }
    }
    out[i] = which < 0 ? missing : hop[which];
}
