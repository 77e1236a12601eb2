// Four nearest neighbours in the plane, brute force. Equal distances: the one found first stays in front.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

const int KNN = 4;

__global__ void knn4(const float2* queries, const float2* points, int* index, float* distance, int n, int m)
{
    const int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= n) return;
    float bd[KNN];
    int bi[KNN];
    for (int k = 0; k < KNN; ++k) { bd[k] = INFINITY; bi[k] = -1; }
    for (int j = 0; j < m; ++j) {
        const float dx = points[j].x - queries[q].x;
        const float dy = points[j].y - queries[q].y;
        const float d = dx * dx + dy * dy;
        if (d < bd[KNN - 1]) {
            int k = KNN - 1;
            while (k > 0 && d < bd[k - 1]) { bd[k] = bd[k - 1]; bi[k] = bi[k - 1]; --k; }
            bd[k] = d;
            bi[k] = j;
        }
    }
    for (int k = 0; k < KNN; ++k) { index[q * KNN + k] = bi[k]; distance[q * KNN + k] = bd[k]; }
}

int main()
{
    const int n = 500, m = 301;
    std::vector<float2> q(n), p(m);
    for (int i = 0; i < n; ++i) q[i] = make_float2((i * 37 % 101) * 0.25f, (i * 53 % 97) * 0.25f);
    for (int i = 0; i < m; ++i) p[i] = make_float2((i * 29 % 83) * 0.3125f, (i * 11 % 71) * 0.3125f);
    float2 *dq, *dp; int* di; float* dd;
    cudaMalloc(&dq, n * sizeof(float2)); cudaMalloc(&dp, m * sizeof(float2));
    cudaMalloc(&di, n * KNN * 4); cudaMalloc(&dd, n * KNN * 4);
    cudaMemcpy(dq, q.data(), n * sizeof(float2), cudaMemcpyHostToDevice);
    cudaMemcpy(dp, p.data(), m * sizeof(float2), cudaMemcpyHostToDevice);
    knn4<<<(n + 63) / 64, 64>>>(dq, dp, di, dd, n, m);
    std::vector<int> i(n * KNN); std::vector<float> d(n * KNN);
    cudaMemcpy(i.data(), di, n * KNN * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(d.data(), dd, n * KNN * 4, cudaMemcpyDeviceToHost);
    long si = 0; double sd = 0;
    for (int k = 0; k < n * KNN; ++k) { si += (long)i[k] * (k % 7 + 1); sd += d[k]; }
    printf("%ld %.4f\n", si, sd);
    return 0;
}
