// Expands run-length coded data: output i belongs to the last run that starts at or before i; 0 before the first one.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

template <typename Symbol>
__global__ void expand(const Symbol *symbols, const int *starts, int runs, Symbol *out, int total)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int lo = 0, hi = runs;                       // first run that starts behind i
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (starts[mid] <= i) lo = mid + 1;
        else hi = mid;
    }
    out[i] = lo > 0 ? symbols[lo - 1] : Symbol(0);
}

int main()
{
    const int runs = 1500;
    std::vector<unsigned short> sym(runs);
    std::vector<int> start(runs);
    int total = 0;
    for (int r = 0; r < runs; ++r) {
        sym[r] = (unsigned short)(r * 40503u >> 3);
        start[r] = total;
        total += 6 + (r * 29) % 23;
    }
    unsigned short *ds, *dout; int *dst;
    cudaMalloc(&ds, runs * 2); cudaMalloc(&dst, runs * 4); cudaMalloc(&dout, total * 2);
    cudaMemcpy(ds, sym.data(), runs * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(dst, start.data(), runs * 4, cudaMemcpyHostToDevice);
    expand<unsigned short><<<(total + 255) / 256, 256>>>(ds, dst, runs, dout, total);
    std::vector<unsigned short> o(total);
    cudaMemcpy(o.data(), dout, total * 2, cudaMemcpyDeviceToHost);
    unsigned long long s = 0;
    for (int i = 0; i < total; ++i) s += (unsigned long long)o[i] * (i % 97 + 1);
    printf("%d symbols, checksum %llu\n", total, s);
}
