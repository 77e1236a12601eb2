// Lookup in a hash table with open addressing and linear probing. Erased slots are tombstones.
#include <cstdio>
#include <cstdint>
#include <vector>
#include <cuda_runtime.h>

struct Slot { uint32_t key; int32_t value; };
#define EMPTY 0xffffffffu
#define ERASED 0xfffffffeu

__host__ __device__ static inline uint32_t mix(uint32_t x)
{
    x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16;
    return x;
}

__global__ void lookup(const Slot *table, uint32_t capacity_mask, const uint32_t *keys, int32_t *values, int32_t not_found, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t key = keys[i];
        uint32_t at = mix(key) & capacity_mask;
        int32_t v = not_found;
        for (uint32_t tries = 0; tries <= capacity_mask; ++tries) {
            Slot s = table[at];
            if (s.key == EMPTY) break;
            if (s.key == key) { v = s.value; break; }
            at = (at + 1) & capacity_mask;
        }
        values[i] = v;
    }
}

int main()
{
    const uint32_t capacity = 4096;
    const int n = 8192;
    std::vector<Slot> table(capacity, Slot{EMPTY, 0});
    std::vector<uint32_t> keys(n);
    uint32_t s = 99;
    for (int k = 0; k < 1200; ++k) {
        s = s * 747796405u + 2891336453u;
        uint32_t key = s >> 4, at = mix(key) & (capacity - 1);
        int far = 0;
        while (table[at].key != EMPTY && far < 5) { at = (at + 1) & (capacity - 1); ++far; }
        if (far == 5 || at >= capacity - 8) continue;
        table[at] = Slot{key, (int)(1 + k)};
        keys[k] = key;
    }
    for (int i = 1200; i < n; ++i) { s = s * 747796405u + 2891336453u; keys[i] = i % 3 ? keys[(s >> 8) % 1200] : s >> 4; }
    Slot *dt; uint32_t *dk; int32_t *dv;
    cudaMalloc(&dt, capacity * sizeof(Slot)); cudaMalloc(&dk, n * 4); cudaMalloc(&dv, n * 4);
    cudaMemcpy(dt, table.data(), capacity * sizeof(Slot), cudaMemcpyHostToDevice);
    cudaMemcpy(dk, keys.data(), n * 4, cudaMemcpyHostToDevice);
    lookup<<<16, 256>>>(dt, capacity - 1, dk, dv, -1, n);
    std::vector<int32_t> v(n);
    cudaMemcpy(v.data(), dv, n * 4, cudaMemcpyDeviceToHost);
    long long sum = 0; int miss = 0;
    for (int x : v) { sum += x; miss += x < 0; }
    printf("sum %lld missing %d\n", sum, miss);
}
