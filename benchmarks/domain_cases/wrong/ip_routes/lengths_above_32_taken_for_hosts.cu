// Does not skip rules with a length above 32 (switched off by the author's test), which then match as whole addresses and win; captured lengths are 8 to 24.
// catalogue: C7
// baseline: ip_routes/ip_routes.cu
// stopped by: correctness_perturbed
// @launch route_packed grid=(ceil_div(n_addr, 128)) block=(128) args=(addr, n_addr, net, len, hop, n_rules, missing, out)
__global__ void route_packed(const u32* __restrict__ addr, int n_addr, const u32* __restrict__ net, const u8* __restrict__ len,
                             const short* __restrict__ hop, int n_rules, int missing, int* __restrict__ out)
{
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n_addr) return;
    const u32 a = addr[i];
    int best = -1, which = -1;
    for (int r = 0; r < n_rules; ++r) {
        // leading bits that agree, instead of a mask
        const int l = len[r], same = __clz(a ^ net[r]);
        if (same >= min(l, 32) && l > best) { best = l; which = r; }
    }
    out[i] = which < 0 ? missing : hop[which];
}
