// Collatz: steps from first + i to 1, at most `cap`. Reads nothing, integers only.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void collatz(int *steps, unsigned long long first, int n, int cap)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned long long v = first + i;
        int k = 0;
        while (v != 1 && k < cap) {
            v = (v & 1) ? 3 * v + 1 : v >> 1;
            ++k;
        }
        steps[i] = k;
    }
}

int main()
{
    const int n = 6000, cap = 150;
    int *d;
    cudaMalloc(&d, n * sizeof(int));
    collatz<<<12, 128>>>(d, 0ull, n, cap);
    std::vector<int> s(n);
    cudaMemcpy(s.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost);
    long long sum = 0; int longest = 0;
    for (int i = 0; i < n; ++i) { sum += s[i]; if (s[i] > s[longest]) longest = i; }
    printf("sum %lld longest at %d with %d\n", sum, longest, s[longest]);
    return 0;
}
