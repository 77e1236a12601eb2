// *out = sum of x, for total(const float* x, float* out, int n), which sums in one thread or with an
// atomic an element. Each thread sums many elements in a register, a warp by shuffles, a block
// through shared memory; a second launch sums the blocks' parts, in an order that never changes.
// @tune BLOCK = 256, 128, 512
// @tune EACH = 8, 16, 4
// @scratch parts bytes=4*ceil_div(n, BLOCK*EACH)
// @requires n > 0
// @launch sum_parts grid=(ceil_div(n, BLOCK*EACH)) block=(BLOCK) args=(x, parts, n)
// @launch sum_of_parts grid=(1) block=(BLOCK) args=(parts, out, ceil_div(n, BLOCK*EACH))
__device__ float block_sum(float v) {
    __shared__ float of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
    if (lane == 0) of_warp[warp] = v;
    __syncthreads();
    v = lane < BLOCK / 32 ? of_warp[lane] : 0.0f;
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
    return v;  // right in lane 0 of every warp
}

__global__ void __launch_bounds__(BLOCK) sum_parts(const float* __restrict__ x, float* parts, int n) {
    float v = 0.0f;
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const size_t i = ((size_t)blockIdx.x * EACH + e) * BLOCK + threadIdx.x;
        if (i < n) v += x[i];
    }
    v = block_sum(v);
    if (threadIdx.x == 0) parts[blockIdx.x] = v;
}

__global__ void __launch_bounds__(BLOCK) sum_of_parts(const float* parts, float* out, int count) {
    float v = 0.0f;
    for (int i = threadIdx.x; i < count; i += BLOCK) v += parts[i];
    v = block_sum(v);
    if (threadIdx.x == 0) *out = v;
}
