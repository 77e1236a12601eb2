// A warp sums the pull on one body over 32 partial sums and joins them by a butterfly.
// baseline: gravity/gravity.cu
// @requires n > 0 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 4)) block=(128) args=(body, acc, n, eps2)
__global__ void fast(const float4* __restrict__ body, Acc* __restrict__ acc, int n, float eps2)
{
    const int i = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (i >= n) return;
    const float4 me = body[i];
    float3 sum = make_float3(0.f, 0.f, 0.f);
    for (int j = lane; j < n; j += 32) {
        const float4 o = body[j];
        const float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
        const float inv = rsqrtf(dx * dx + dy * dy + dz * dz + eps2);
        const float f = o.w * (inv * inv * inv);
        sum.x += f * dx;
        sum.y += f * dy;
        sum.z += f * dz;
    }
    for (int d = 16; d; d >>= 1) {
        sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d);
        sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
        sum.z += __shfl_xor_sync(0xffffffffu, sum.z, d);
    }
    if (lane == 0) acc[i].ax = sum.x;
    if (lane == 1) acc[i].ay = sum.y;
    if (lane == 2) acc[i].az = sum.z;
}
