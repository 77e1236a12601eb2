// Closest fingerprint (256 bits) by Hamming distance; ties go to the lowest index.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define WORDS 4

__global__ void closest(const uint64_t *query, const uint64_t *db, int *who, int *how_far, int nq, int nd)
{
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= nq) return;
    int best = 1 << 30, arg = -1;
    for (int j = 0; j < nd; j++) {
        int d = 0;
        for (int w = 0; w < WORDS; w++)
            d += __popcll(query[q * WORDS + w] ^ db[j * WORDS + w]);
        if (d < best) { best = d; arg = j; }
    }
    who[q] = arg;
    how_far[q] = best;
}

static uint64_t rng(uint64_t &s) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; return s; }

int main()
{
    const int nq = 400, nd = 250;
    uint64_t *q = (uint64_t *)malloc(nq * WORDS * 8), *db = (uint64_t *)malloc(nd * WORDS * 8), s = 88172645463325252ull;
    for (int i = 0; i < nd * WORDS; i++) db[i] = rng(s) & rng(s);
    for (int i = 0; i < nq * WORDS; i++) q[i] = rng(s) & rng(s);
    uint64_t *dq, *dd; int *dw, *df;
    cudaMalloc(&dq, nq * WORDS * 8); cudaMalloc(&dd, nd * WORDS * 8);
    cudaMalloc(&dw, nq * sizeof(int)); cudaMalloc(&df, nq * sizeof(int));
    cudaMemcpy(dq, q, nq * WORDS * 8, cudaMemcpyHostToDevice);
    cudaMemcpy(dd, db, nd * WORDS * 8, cudaMemcpyHostToDevice);
    closest<<<(nq + 127) / 128, 128>>>(dq, dd, dw, df, nq, nd);
    int *w = (int *)malloc(nq * 4), *f = (int *)malloc(nq * 4);
    cudaMemcpy(w, dw, nq * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(f, df, nq * 4, cudaMemcpyDeviceToHost);
    long a = 0, b = 0;
    for (int i = 0; i < nq; i++) { a += (long)w[i] * (i % 5 + 1); b += f[i]; }
    printf("%ld %ld\n", a, b);
    return 0;
}
