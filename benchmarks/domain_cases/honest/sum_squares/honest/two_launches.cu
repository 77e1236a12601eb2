// Two launches: partial sums to scratch without atomics, then one block adds them, in double, to the result.
// baseline: sum_squares/sum_squares.cu
// @requires n > 0 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1 && blockDim.x == 128
// @scratch partial bytes=8*min(ceil_div(n, 1024), 64)
// @launch parts grid=(min(ceil_div(n, 1024), 64)) block=(128) args=(v, partial, n)
// @launch whole grid=(1) block=(32) args=(partial, result, min(ceil_div(n, 1024), 64))
__global__ void parts(const float* __restrict__ v, double* __restrict__ partial, int n)
{
    __shared__ double warp_part[4];
    double mine = 0.0;
    for (long long i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) mine += (double)v[i] * v[i];
    for (int d = 16; d; d >>= 1) mine += __shfl_down_sync(0xffffffffu, mine, d);
    if (threadIdx.x % 32 == 0) warp_part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = warp_part[0] + warp_part[1] + (warp_part[2] + warp_part[3]);
}
__global__ void whole(const double* __restrict__ partial, float* result, int count)
{
    double sum = 0.0;
    for (int b = threadIdx.x; b < count; b += 32) sum += partial[b];
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0) *result = (float)(*result + sum);
}
