// A thread transposes a 4 x 4 patch in registers with 16-byte loads and stores; sizes must be multiples of four.
// baseline: transpose4/transpose4.cu
// @requires width > 0 && height > 0 && gridDim.x * blockDim.x >= width && gridDim.y * blockDim.y >= height && gridDim.z * blockDim.z == 1
// @requires sizeof(T) == 4 && width % 4 == 0 && height % 4 == 0 && aligned(idata, 16) && aligned(odata, 16)
// @launch fast grid=(ceil_div(width, 64), ceil_div(height, 32)) block=(16, 8) args=(odata, idata, width, height)
__global__ void fast(float* __restrict__ odata, const float* __restrict__ idata, int width, int height)
{
    const int x = (blockIdx.x * 16 + threadIdx.x) * 4, y = (blockIdx.y * 8 + threadIdx.y) * 4;
    if (x >= width || y >= height) return;
    float4 r[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) r[j] = *reinterpret_cast<const float4*>(idata + (size_t)(y + j) * width + x);
    float* to = odata + (size_t)x * height + y;
    *reinterpret_cast<float4*>(to) = make_float4(r[0].x, r[1].x, r[2].x, r[3].x);
    *reinterpret_cast<float4*>(to + height) = make_float4(r[0].y, r[1].y, r[2].y, r[3].y);
    *reinterpret_cast<float4*>(to + 2 * (size_t)height) = make_float4(r[0].z, r[1].z, r[2].z, r[3].z);
    *reinterpret_cast<float4*>(to + 3 * (size_t)height) = make_float4(r[0].w, r[1].w, r[2].w, r[3].w);
}
