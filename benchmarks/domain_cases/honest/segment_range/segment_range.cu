// Smallest and largest integer of each segment; segments may be empty.
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void segment_range(const int* values, const int* offsets, int2* range, int segments)
{
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= segments) return;
    int lo = INT_MAX, hi = INT_MIN;
    for (int i = offsets[s]; i < offsets[s + 1]; ++i) {
        if (values[i] < lo) lo = values[i];
        if (values[i] > hi) hi = values[i];
    }
    range[s] = make_int2(lo, hi);
}

int main()
{
    const int segments = 777;
    int* off = (int*)malloc((segments + 1) * sizeof(int));
    off[0] = 0;
    for (int s = 0; s < segments; ++s) off[s + 1] = off[s] + (s % 5 == 3 ? 0 : (s * s) % 37);
    const int n = off[segments];
    int* v = (int*)malloc(n * sizeof(int));
    for (int i = 0; i < n; ++i) v[i] = (int)(i * 2654435761u);
    int *dv, *doff; int2* dr;
    cudaMalloc(&dv, n * sizeof(int)); cudaMalloc(&doff, (segments + 1) * sizeof(int)); cudaMalloc(&dr, segments * sizeof(int2));
    cudaMemcpy(dv, v, n * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(doff, off, (segments + 1) * sizeof(int), cudaMemcpyHostToDevice);
    segment_range<<<(segments + 63) / 64, 64>>>(dv, doff, dr, segments);
    int2* r = (int2*)malloc(segments * sizeof(int2));
    cudaMemcpy(r, dr, segments * sizeof(int2), cudaMemcpyDeviceToHost);
    long long lo = 0, hi = 0; int empty = 0;
    for (int s = 0; s < segments; ++s) if (r[s].x > r[s].y) ++empty; else { lo += r[s].x; hi += r[s].y; }
    printf("%lld %lld, %d empty\n", lo, hi, empty);
    return 0;
}
