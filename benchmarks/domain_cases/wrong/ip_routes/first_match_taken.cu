// Stops at the first rule that matches: the captured table is sorted by descending length, the author's kernel takes any order.
// catalogue: C7
// baseline: ip_routes/ip_routes.cu
// stopped by: correctness_perturbed
// @launch route_first grid=(ceil_div(n_addr, 256)) block=(256) args=(addr, n_addr, net, len, hop, n_rules, missing, out)
__global__ void route_first(const u32* __restrict__ addr, int n_addr, const u32* __restrict__ net, const u8* __restrict__ len,
                            const short* __restrict__ hop, int n_rules, int missing, int* __restrict__ out)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_addr) return;
    const u32 a = addr[i];
    int h = missing;
    for (int r = 0; r < n_rules; ++r) {
        const int l = len[r];
        if (l <= 32 && ((a ^ net[r]) & mask_of(l)) == 0) { h = hop[r]; break; }
    }
    out[i] = h;
}
