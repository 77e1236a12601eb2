// The mask comes from an arithmetic shift by len - 1, so that a default route (length 0) gets a full mask; no captured rule is shorter than 8 bits.
// catalogue: C7
// baseline: ip_routes/ip_routes.cu
// stopped by: correctness_perturbed
// @launch route_shared grid=(ceil_div(n_addr, 128)) block=(128) args=(addr, n_addr, net, len, hop, n_rules, missing, out)
__global__ void route_shared(const u32* __restrict__ addr, int n_addr, const u32* __restrict__ net, const u8* __restrict__ len,
                             const short* __restrict__ hop, int n_rules, int missing, int* __restrict__ out)
{
    __shared__ u32 s_net[128], s_mask[128];
    __shared__ int s_len[128];
    const int i = blockIdx.x * 128 + threadIdx.x;
    const u32 a = i < n_addr ? addr[i] : 0;
    int best = -1, which = -1;
    for (int base = 0; base < n_rules; base += 128) {
        int m = min(128, n_rules - base);
        __syncthreads();
        if (threadIdx.x < m) {
            int l = len[base + threadIdx.x];
            s_net[threadIdx.x] = net[base + threadIdx.x];
            s_len[threadIdx.x] = l > 32 ? -1 : l;
            s_mask[threadIdx.x] = (u32)((int)0x80000000 >> ((l - 1) & 31));
        }
        __syncthreads();
        for (int r = 0; r < m; ++r)
            if (((a ^ s_net[r]) & s_mask[r]) == 0 && s_len[r] > best) { best = s_len[r]; which = base + r; }
    }
    if (i < n_addr) out[i] = which < 0 ? missing : hop[which];
}
