// A block a row: four values a thread in sequence, warp scans of the threads' totals, and the warps' totals added in order.
// baseline: running_totals/running_totals.cu
// @requires rows > 0 && cols <= 512 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(rows) block=(128) args=(in, out, cols)
__global__ void fast(const float* __restrict__ in, float* __restrict__ out, int cols)
{
    __shared__ float warp_total[4];
    const int t = threadIdx.x, lane = t & 31, first = t * 4;
    const float* x = in + blockIdx.x * cols;
    float v[4];
    float run = 0.f;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        if (first + e < cols) run += x[first + e];
        v[e] = run;
    }
    float upto = run;
    for (int d = 1; d < 32; d <<= 1) {
        const float left = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += left;
    }
    if (lane == 31) warp_total[t / 32] = upto;
    float before = __shfl_up_sync(0xffffffffu, upto, 1);      // exclusive without a subtraction: infinities stay right
    if (lane == 0) before = 0.f;
    __syncthreads();
    float base = 0.f;
    for (int w = 0; w < t / 32; ++w) base += warp_total[w];
#pragma unroll
    for (int e = 0; e < 4; ++e)
        if (first + e < cols) out[blockIdx.x * cols + first + e] = (base + before) + v[e];
}
