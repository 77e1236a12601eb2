// Longest prefix match: next hop of each IPv4 address by a table of rules. Among rules of one length the first wins.
#include <cstdio>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>
typedef unsigned int u32;
typedef unsigned char u8;

struct Rng { u32 s; u32 next() { s ^= s << 13; s ^= s >> 17; s ^= s << 5; return s; } };

__host__ __device__ inline u32 mask_of(int len) { return len == 0 ? 0u : 0xffffffffu << (32 - len); }

__global__ void route(const u32* __restrict__ addr, int n_addr, const u32* __restrict__ net, const u8* __restrict__ len,
                      const short* __restrict__ hop, int n_rules, int missing, int* __restrict__ out)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_addr) return;
    const u32 a = addr[i];
    int best = -1, h = missing;
    for (int r = 0; r < n_rules; ++r) {
        int l = len[r];
        if (l > 32) continue;
        if (((a ^ net[r]) & mask_of(l)) == 0 && l > best) { best = l; h = hop[r]; }
    }
    out[i] = h;
}

int main()
{
    const int NR = 96, NA = 8192;
    Rng g{2463534242u};
    struct Rule { u32 net; u8 len; short hop; };
    std::vector<Rule> rules(NR);
    for (int r = 0; r < NR; ++r) {
        rules[r].len = (u8)(r < 32 ? 8 : 9 + g.next() % 16);
        rules[r].net = (r < 32 ? (u32)r << 24 : (g.next() % 32 << 24 | (g.next() & 0xffffff))) & mask_of(rules[r].len);
        rules[r].hop = (short)(1 + g.next() % 200);
    }
    std::stable_sort(rules.begin(), rules.end(), [](const Rule& a, const Rule& b) { return a.len > b.len; });
    std::vector<u32> net(NR), addr(NA); std::vector<u8> len(NR); std::vector<short> hop(NR);
    for (int r = 0; r < NR; ++r) { net[r] = rules[r].net; len[r] = rules[r].len; hop[r] = rules[r].hop; }
    for (auto& a : addr) a = (g.next() % 32 << 24) | (g.next() & 0xffffff);
    u32 *dn, *da; u8* dl; short* dh; int* dout;
    cudaMalloc(&dn, NR * 4); cudaMalloc(&da, NA * 4); cudaMalloc(&dl, NR); cudaMalloc(&dh, NR * 2); cudaMalloc(&dout, NA * 4);
    cudaMemcpy(dn, net.data(), NR * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(da, addr.data(), NA * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dl, len.data(), NR, cudaMemcpyHostToDevice);
    cudaMemcpy(dh, hop.data(), NR * 2, cudaMemcpyHostToDevice);
    route<<<NA / 128, 128>>>(da, NA, dn, dl, dh, NR, -1, dout);
    std::vector<int> out(NA);
    cudaMemcpy(out.data(), dout, NA * 4, cudaMemcpyDeviceToHost);
    long long s = 0; int none = 0;
    for (int o : out) { s += o; none += o < 0; }
    printf("sum of hops %lld, without a route %d\n", s, none);
}
