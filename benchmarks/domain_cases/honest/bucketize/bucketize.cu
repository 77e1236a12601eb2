// In which age class is each value? Class limits are fixed and ascending.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__device__ const float limits[31] = {
    0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 5.f, 6.f, 8.f, 10.f, 12.f, 14.f, 16.f, 18.f, 20.f, 22.5f,
    25.f, 27.5f, 30.f, 35.f, 40.f, 45.f, 50.f, 55.f, 60.f, 65.f, 70.f, 75.f, 80.f, 90.f, 100.f };

__global__ void bucketize(const float *values, unsigned char *bucket, unsigned int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = values[i];
    int lo = 0, hi = 31;
    while (lo < hi) {
        int mid = (lo + hi) >> 1;
        if (v < limits[mid]) hi = mid; else lo = mid + 1;
    }
    bucket[i] = (unsigned char)lo;
    atomicAdd(&count[lo], 1u);
}

int main()
{
    const int n = 12000;
    std::vector<float> v(n);
    for (int i = 0; i < n; ++i) v[i] = (i * 7919 % 1100) * 0.1f;
    float *dv; unsigned char *db; unsigned int *dc, c[32];
    cudaMalloc(&dv, n * sizeof(float)); cudaMalloc(&db, n); cudaMalloc(&dc, sizeof(c));
    cudaMemcpy(dv, v.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(dc, 0, sizeof(c));
    bucketize<<<(n + 127) / 128, 128>>>(dv, db, dc, n);
    std::vector<unsigned char> b(n);
    cudaMemcpy(b.data(), db, n, cudaMemcpyDeviceToHost);
    cudaMemcpy(c, dc, sizeof(c), cudaMemcpyDeviceToHost);
    long s = 0;
    for (int i = 0; i < n; ++i) s += b[i] * (i % 9);
    printf("%ld; first %u last %u\n", s, c[0], c[31]);
    return 0;
}
