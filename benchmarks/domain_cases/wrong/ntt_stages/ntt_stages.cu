// Number-theoretic transform, one launch a stage, in place.
#include <iostream>
#include <vector>
#include <cuda_runtime.h>
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ u32 mul_mod(u32 a, u32 b, u32 q) { return (u32)((u64)a * b % q); }

__global__ void butterfly(u32 *a, const u32 *w, int half, int n, u32 q)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n / 2) return;
    int k = t % half;
    int j = (t / half) * 2 * half + k;
    u32 u = a[j] % q;
    u32 v = mul_mod(a[j + half], w[k * (n / (2 * half))], q);
    a[j] = (u32)(((u64)u + v) % q);
    a[j + half] = (u32)(((u64)u + q - v) % q);
}

static u32 power(u32 b, u32 e, u32 q) { u64 r = 1, x = b; for (; e; e >>= 1, x = x * x % q) if (e & 1) r = r * x % q; return (u32)r; }

int main()
{
    const u32 q = 12289;
    const int n = 4096;
    u32 root = power(11, (q - 1) / n, q);
    std::vector<u32> a(n), w(n / 2);
    for (int i = 0; i < n; ++i) { int r = 0; for (int b = 0; b < 12; ++b) r |= (i >> b & 1) << (11 - b); a[r] = (u32)((i * 31 + i * i) % q); }
    for (int i = 0; i < n / 2; ++i) w[i] = power(root, i, q);
    u32 *da, *dw;
    cudaMalloc(&da, n * 4);
    cudaMalloc(&dw, n / 2 * 4);
    cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dw, w.data(), n / 2 * 4, cudaMemcpyHostToDevice);
    for (int half = 1; half < n; half *= 2) butterfly<<<n / 2 / 128, 128>>>(da, dw, half, n, q);
    cudaMemcpy(a.data(), da, n * 4, cudaMemcpyDeviceToHost);
    u64 s = 0;
    for (int i = 0; i < n; ++i) s += (u64)a[i] * (i + 1);
    std::cout << "checksum " << s << " a[1] " << a[1] << "\n";
}
