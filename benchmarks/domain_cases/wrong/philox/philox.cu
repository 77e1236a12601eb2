// Counter-based random numbers (Philox 4x32). Every thread makes four words of the stream of a seed from an offset on.
#include <cstdio>
#include <cstdint>
#include <vector>
#include <cuda_runtime.h>

__device__ __forceinline__ uint4 philox_round(uint4 c, uint2 k)
{
    uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
    uint32_t h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    return make_uint4(h1 ^ c.y ^ k.x, l1, h0 ^ c.w ^ k.y, l0);
}

__global__ void philox_fill(uint32_t *out, size_t n, unsigned long long seed, unsigned long long offset, unsigned int stream, int rounds)
{
    size_t t = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (4 * t >= n) return;
    unsigned long long at = offset + t;
    uint4 c = make_uint4((uint32_t)at, (uint32_t)(at >> 32), stream, 0u);
    uint2 k = make_uint2((uint32_t)seed, (uint32_t)(seed >> 32));
    for (int r = 0; r < rounds; ++r) {
        c = philox_round(c, k);
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    out[4 * t] = c.x;
    if (4 * t + 1 < n) out[4 * t + 1] = c.y;
    if (4 * t + 2 < n) out[4 * t + 2] = c.z;
    if (4 * t + 3 < n) out[4 * t + 3] = c.w;
}

int main()
{
    const size_t n = 32768;
    uint32_t *d;
    cudaMalloc(&d, n * sizeof(uint32_t));
    std::vector<uint32_t> h(n);
    unsigned long long offset = 0;
    for (int batch = 0; batch < 3; ++batch) {
        philox_fill<<<(n / 4 + 127) / 128, 128>>>(d, n, 1234ull, offset, 0u, 10);
        offset += n / 4;
        cudaMemcpy(h.data(), d, n * sizeof(uint32_t), cudaMemcpyDeviceToHost);
        uint32_t x = 0; double mean = 0;
        for (uint32_t v : h) { x = x * 3 + v; mean += v / 4294967296.0; }
        printf("batch %d: checksum %u mean %.6f\n", batch, x, mean / n);
    }
}
