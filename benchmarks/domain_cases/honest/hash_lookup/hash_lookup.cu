// Read-only lookups in an open addressing hash table with linear probing.
#include <cstdint>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Slot { uint32_t key; uint32_t value; };
constexpr uint32_t kEmpty = 0xffffffffu;
constexpr uint32_t kMissing = 0xfffffffeu;

__host__ __device__ inline uint32_t mix(uint32_t k)
{
    k ^= k >> 16; k *= 0x85ebca6b; k ^= k >> 13; k *= 0xc2b2ae35; k ^= k >> 16;
    return k;
}

__global__ void lookup(const Slot* table, uint32_t mask, const uint32_t* queries, uint32_t* found, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const uint32_t q = queries[i];
    uint32_t h = mix(q) & mask;
    uint32_t answer = kMissing;
    for (uint32_t step = 0; step <= mask; ++step) {
        Slot s = table[h];
        if (s.key == q) { answer = s.value; break; }
        if (s.key == kEmpty) break;
        h = (h + 1) & mask;
    }
    found[i] = answer;
}

int main()
{
    const uint32_t cap = 4096, n = 6000;
    std::vector<Slot> t(cap, Slot{kEmpty, 0});
    for (uint32_t k = 0; k < 3000; ++k) {
        uint32_t key = k * 7 + 1, h = mix(key) & (cap - 1);
        while (t[h].key != kEmpty) h = (h + 1) & (cap - 1);
        t[h] = Slot{key, k};
    }
    std::vector<uint32_t> q(n), f(n);
    for (uint32_t i = 0; i < n; ++i) q[i] = (i * 13) % 22000;
    Slot* dt; uint32_t *dq, *df;
    cudaMalloc(&dt, cap * sizeof(Slot)); cudaMalloc(&dq, n * 4); cudaMalloc(&df, n * 4);
    cudaMemcpy(dt, t.data(), cap * sizeof(Slot), cudaMemcpyHostToDevice);
    cudaMemcpy(dq, q.data(), n * 4, cudaMemcpyHostToDevice);
    lookup<<<(n + 127) / 128, 128>>>(dt, cap - 1, dq, df, n);
    cudaMemcpy(f.data(), df, n * 4, cudaMemcpyDeviceToHost);
    uint64_t sum = 0; uint32_t hit = 0;
    for (uint32_t v : f) if (v != kMissing) { ++hit; sum += v; }
    printf("%u hits, sum %llu\n", hit, (unsigned long long)sum);
    return 0;
}
