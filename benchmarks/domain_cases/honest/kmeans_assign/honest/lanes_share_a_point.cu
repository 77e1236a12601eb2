// Four lanes a point, each for every fourth centroid; the smaller distance wins, and of equal ones the lower centroid, as in the author's loop.
// baseline: kmeans_assign/kmeans_assign.cu
// @requires n > 0 && k >= 0 && DIMS <= 32 && gridDim.x * blockDim.x >= n
// @launch fast<DIMS> grid=(ceil_div(n, 32)) block=(128) args=(pts, cent, label, dist, n, k)
template <int D>
__global__ void fast(const float* __restrict__ pts, const float* __restrict__ cent, int* label, float* dist, int n, int k)
{
    const int i = blockIdx.x * 32 + (threadIdx.x >> 2), part = threadIdx.x & 3;
    float best = INFINITY;
    int lab = 0x7fffffff;
    if (i < n) {
        float at[D];
#pragma unroll
        for (int j = 0; j < D; ++j) at[j] = pts[j * n + i];
        for (int c = part; c < k; c += 4) {
            float d = 0.f;
#pragma unroll
            for (int j = 0; j < D; ++j) { const float t = at[j] - cent[c * D + j]; d += t * t; }
            if (d < best) { best = d; lab = c; }
        }
    }
    for (int s = 1; s < 4; s <<= 1) {
        const float d2 = __shfl_xor_sync(0xffffffffu, best, s);
        const int l2 = __shfl_xor_sync(0xffffffffu, lab, s);
        if (d2 < best || (d2 == best && l2 < lab)) { best = d2; lab = l2; }
    }
    if (i < n && part == 0) {
        label[i] = lab == 0x7fffffff ? -1 : lab;
        dist[i] = best;
    }
}
