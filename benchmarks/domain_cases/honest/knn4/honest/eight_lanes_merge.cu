// Eight lanes a query keep a sorted four each; four rounds take the least (distance, index) of the lanes' heads.
// baseline: knn4/knn4.cu
// @requires n > 0 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 16)) block=(128) args=(queries, points, index, distance, n, m)
__global__ void fast(const float2* __restrict__ queries, const float2* __restrict__ points, int* __restrict__ index, float* __restrict__ distance, int n, int m)
{
    const int q = blockIdx.x * 16 + threadIdx.x / 8, part = threadIdx.x & 7;
    const float2 at = queries[min(q, n - 1)];
    float bd[KNN];
    unsigned bi[KNN];
#pragma unroll
    for (int k = 0; k < KNN; ++k) { bd[k] = INFINITY; bi[k] = 0xffffffffu; }        // -1 loses every tie
    for (int j = part; j < m; j += 8) {
        const float dx = points[j].x - at.x;
        const float dy = points[j].y - at.y;
        const float d = dx * dx + dy * dy;
        if (d < bd[KNN - 1]) {
            bd[KNN - 1] = d;
            bi[KNN - 1] = j;
#pragma unroll
            for (int k = KNN - 1; k > 0; --k)
                if (bd[k] < bd[k - 1]) {
                    const float t = bd[k]; bd[k] = bd[k - 1]; bd[k - 1] = t;
                    const unsigned u = bi[k]; bi[k] = bi[k - 1]; bi[k - 1] = u;
                }
        }
    }
#pragma unroll
    for (int k = 0; k < KNN; ++k) {
        float d = bd[0];
        unsigned i = bi[0];
        for (int s = 4; s; s >>= 1) {
            const float d2 = __shfl_xor_sync(0xffffffffu, d, s);
            const unsigned i2 = __shfl_xor_sync(0xffffffffu, i, s);
            if (d2 < d || (d2 == d && i2 < i)) { d = d2; i = i2; }
        }
        if (i == bi[0] && i != 0xffffffffu) {                                       // whose head it was moves up
            bd[0] = bd[1]; bi[0] = bi[1];
            bd[1] = bd[2]; bi[1] = bi[2];
            bd[2] = bd[3]; bi[2] = bi[3];
            bd[3] = INFINITY; bi[3] = 0xffffffffu;
        }
        if (part == 0 && q < n) { index[q * KNN + k] = (int)i; distance[q * KNN + k] = d; }
    }
}
