// The bucket is the number of limits that the value is not below, all compared without a search; equal buckets of a warp add once (__match_any_sync).
// baseline: bucketize/bucketize.cu
// @requires n > 0 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 256)) block=(256) args=(values, bucket, count, n)
__constant__ float LIMIT[31] = {
    0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 5.f, 6.f, 8.f, 10.f, 12.f, 14.f, 16.f, 18.f, 20.f, 22.5f,
    25.f, 27.5f, 30.f, 35.f, 40.f, 45.f, 50.f, 55.f, 60.f, 65.f, 70.f, 75.f, 80.f, 90.f, 100.f };
__global__ void fast(const float* __restrict__ values, unsigned char* __restrict__ bucket, unsigned* count, int n)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    int b = 0;
    if (i < n) {
        const float v = values[i];
#pragma unroll
        for (int k = 0; k < 31; ++k) b += !(v < LIMIT[k]);
        bucket[i] = (unsigned char)b;
    }
    const unsigned same = __match_any_sync(0xffffffffu, i < n ? b : -1);
    if (i < n && (threadIdx.x & 31) == __ffs(same) - 1) atomicAdd(&count[b], (unsigned)__popc(same));
}
