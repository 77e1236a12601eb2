// A carry goes from one statement of inline PTX to the next, both written by macros.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#define add_cc(dest, a, b) asm volatile("add.cc.u32 %0, %1, %2;\n\t" : "=r"(dest) : "r"(a), "r"(b))
#define addc(dest, a, b) \
    asm volatile("addc.u32 %0, %1, %2;\n\t" : "=r"(dest) : "r"(a), "r"(b))
__global__ void sums(const unsigned *a, const unsigned *b, unsigned *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    add_cc(c[2 * i], a[2 * i], b[2 * i]);
    addc(c[2 * i + 1], a[2 * i + 1], b[2 * i + 1]);
}
int main() {
    const int n = 4096;
    std::vector<unsigned> a(2 * n), b(2 * n), c(2 * n);
    for (int i = 0; i < 2 * n; ++i) a[i] = 0x9e3779b9u * (i + 1), b[i] = 0x85ebca6bu * (i + 3);
    unsigned *da, *db, *dc;
    cudaMalloc(&da, 8 * n), cudaMalloc(&db, 8 * n), cudaMalloc(&dc, 8 * n);
    cudaMemcpy(da, a.data(), 8 * n, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), 8 * n, cudaMemcpyHostToDevice);
    sums<<<n / 128, 128>>>(da, db, dc, n);
    cudaMemcpy(c.data(), dc, 8 * n, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < n; ++i) {
        unsigned long long x = a[2 * i] | (unsigned long long)a[2 * i + 1] << 32, y = b[2 * i] | (unsigned long long)b[2 * i + 1] << 32;
        wrong += (x + y) != (c[2 * i] | (unsigned long long)c[2 * i + 1] << 32);
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
