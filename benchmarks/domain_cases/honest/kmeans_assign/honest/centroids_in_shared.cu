// The centroids are staged in dynamic shared memory and a point's coordinates in registers; operations and order of comparisons are the author's.
// baseline: kmeans_assign/kmeans_assign.cu
// @requires n > 0 && k >= 0 && k * DIMS <= 8192 && DIMS <= 32 && gridDim.x * blockDim.x >= n
// @launch fast<DIMS> grid=(ceil_div(n, 256)) block=(256) smem=4*k*DIMS args=(pts, cent, label, dist, n, k)
template <int D>
__global__ void fast(const float* __restrict__ pts, const float* __restrict__ cent, int* label, float* dist, int n, int k)
{
    extern __shared__ float table[];
    for (int e = threadIdx.x; e < k * D; e += 256) table[e] = cent[e];
    __syncthreads();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float at[D];
#pragma unroll
    for (int j = 0; j < D; ++j) at[j] = pts[j * n + i];
    float best = INFINITY;
    int lab = -1;
    for (int c = 0; c < k; ++c) {
        float d = 0.f;
#pragma unroll
        for (int j = 0; j < D; ++j) { const float t = at[j] - table[c * D + j]; d += t * t; }
        if (d < best) { best = d; lab = c; }
    }
    label[i] = lab;
    dist[i] = best;
}
