// kernel template with default template arguments, launched with <> and with some given
#include <cstdio>
#include <vector>

struct Plus { __device__ static int apply(int a, int b) { return a + b; } };
struct Xor { __device__ static int apply(int a, int b) { return a ^ b; } };

template <typename Op = Plus, int BLOCK = 128, int ITEMS = 4>
__global__ void block_reduce(const int *in, int *out, int n)
{
    __shared__ int buf[BLOCK];
    int base = blockIdx.x * BLOCK * ITEMS + threadIdx.x;
    int acc = 0;
    for (int k = 0; k < ITEMS; ++k) {
        int i = base + k * BLOCK;
        if (i < n)
            acc = Op::apply(acc, in[i]);
    }
    buf[threadIdx.x] = acc;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half)
            buf[threadIdx.x] = Op::apply(buf[threadIdx.x], buf[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = buf[0];
}

int main()
{
    const int n = 10000;
    const int per = 128 * 4;
    const int blocks = (n + per - 1) / per;
    std::vector<int> h(n), part(blocks);
    for (int i = 0; i < n; ++i)
        h[i] = (i * 31 + 7) % 1000;

    int *in, *out;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, 4 * blocks * sizeof(int));
    cudaMemcpy(in, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);

    block_reduce<><<<blocks, 128>>>(in, out, n);
    cudaMemcpy(part.data(), out, blocks * sizeof(int), cudaMemcpyDeviceToHost);
    long sum = 0;
    for (int v : part) sum += v;

    block_reduce<Xor><<<blocks, 128>>>(in, out, n);
    cudaMemcpy(part.data(), out, blocks * sizeof(int), cudaMemcpyDeviceToHost);
    int x = 0;
    for (int v : part) x ^= v;

    block_reduce<Plus, 64><<<2 * blocks, 64>>>(in, out, n);
    std::vector<int> part64(2 * blocks);
    cudaMemcpy(part64.data(), out, 2 * blocks * sizeof(int), cudaMemcpyDeviceToHost);
    long sum64 = 0;
    for (int v : part64) sum64 += v;

    std::printf("sum %ld, xor %d, sum with 64 threads %ld\n", sum, x, sum64);
    cudaFree(in);
    cudaFree(out);
    return 0;
}
