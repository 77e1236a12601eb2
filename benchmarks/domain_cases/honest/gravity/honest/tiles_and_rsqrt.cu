// Bodies pass through shared memory in tiles of 64 (a partial last one too) and the reciprocal root is rsqrtf.
// baseline: gravity/gravity.cu
// @requires n > 0 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 64)) block=(64) args=(body, acc, n, eps2)
__global__ void fast(const float4* __restrict__ body, Acc* __restrict__ acc, int n, float eps2)
{
    __shared__ float4 tile[64];
    const int i = blockIdx.x * 64 + threadIdx.x;
    const float4 me = body[min(i, n - 1)];
    float ax = 0.f, ay = 0.f, az = 0.f;
    for (int first = 0; first < n; first += 64) {
        const int count = min(64, n - first);
        if (threadIdx.x < count) tile[threadIdx.x] = body[first + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < count; ++j) {
            const float4 o = tile[j];
            const float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
            const float inv = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, eps2))));
            const float f = o.w * (inv * inv * inv);
            ax = fmaf(f, dx, ax);
            ay = fmaf(f, dy, ay);
            az = fmaf(f, dz, az);
        }
        __syncthreads();
    }
    if (i < n) acc[i] = Acc{ax, ay, az};
}
