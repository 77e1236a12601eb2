// Blocks leave partial sums in scratch; the last to arrive, told by an atomicInc that wraps to zero, adds them up in order. Deterministic.
// baseline: sum_squares/sum_squares.cu
// @requires n > 0 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1 && blockDim.x == 128
// @scratch partial bytes=4*ceil_div(n, 2048)
// @launch fast grid=(ceil_div(n, 2048)) block=(256) args=(v, result, n, partial)
__device__ unsigned arrived = 0;                      // every launch leaves it at zero
__device__ __forceinline__ float warp_sum(float x)
{
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__global__ void fast(const float* __restrict__ v, float* result, int n, volatile float* partial)
{
    __shared__ float part[8];
    __shared__ bool last;
    const int t = threadIdx.x;
    float mine = 0.f;
    for (int e = 0, i = blockIdx.x * 2048 + t; e < 8 && i < n; ++e, i += 256) mine = fmaf(v[i], v[i], mine);
    mine = warp_sum(mine);
    if ((t & 31) == 0) part[t / 32] = mine;
    __syncthreads();
    if (t == 0) {
        float sum = 0.f;
        for (int w = 0; w < 8; ++w) sum += part[w];
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || t >= 32) return;
    __threadfence();
    float sum = 0.f;
    for (int b = t; b < gridDim.x; b += 32) sum += partial[b];
    sum = warp_sum(sum);
    if (t == 0) *result += sum;
}
