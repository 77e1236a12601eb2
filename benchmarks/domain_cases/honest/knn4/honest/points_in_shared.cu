// Points pass through shared memory in tiles; the sorted four are kept in named registers by compare-and-shift without a loop.
// baseline: knn4/knn4.cu
// @requires n > 0 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 64)) block=(64) args=(queries, points, index, distance, n, m)
__global__ void fast(const float2* __restrict__ queries, const float2* __restrict__ points, int* __restrict__ index, float* __restrict__ distance, int n, int m)
{
    __shared__ float2 tile[128];
    const int q = blockIdx.x * 64 + threadIdx.x;
    const float2 at = queries[min(q, n - 1)];
    float d0 = INFINITY, d1 = INFINITY, d2 = INFINITY, d3 = INFINITY;
    int i0 = -1, i1 = -1, i2 = -1, i3 = -1;
    for (int first = 0; first < m; first += 128) {
        const int count = min(128, m - first);
        for (int e = threadIdx.x; e < count; e += 64) tile[e] = points[first + e];
        __syncthreads();
        for (int e = 0; e < count; ++e) {
            const float dx = tile[e].x - at.x;
            const float dy = tile[e].y - at.y;
            const float d = dx * dx + dy * dy;
            const int j = first + e;
            if (d < d3) {
                if (d < d2) {
                    d3 = d2; i3 = i2;
                    if (d < d1) {
                        d2 = d1; i2 = i1;
                        if (d < d0) { d1 = d0; i1 = i0; d0 = d; i0 = j; }
                        else { d1 = d; i1 = j; }
                    } else { d2 = d; i2 = j; }
                } else { d3 = d; i3 = j; }
            }
        }
        __syncthreads();
    }
    if (q < n) {
        index[q * 4] = i0; index[q * 4 + 1] = i1; index[q * 4 + 2] = i2; index[q * 4 + 3] = i3;
        distance[q * 4] = d0; distance[q * 4 + 1] = d1; distance[q * 4 + 2] = d2; distance[q * 4 + 3] = d3;
    }
}
