// Mean of 2*R+1 neighbours in a row, for smooth(const float* in, float* out, int n, int R), which
// reads every element 2*R+1 times from global memory. A block stages its part of the row with both
// rims in dynamic shared memory, once; then each thread slides over it, two outputs a thread.
// @tune BLOCK = 128, 256, 64
// @requires R >= 0 && 4*(2*BLOCK + 2*R) <= 48*1024
// @launch smooth_staged grid=(ceil_div(n, 2*BLOCK)) block=(BLOCK) smem=4*(2*BLOCK + 2*R) args=(in, out, n, R)
__global__ void __launch_bounds__(BLOCK)
smooth_staged(const float* __restrict__ in, float* __restrict__ out, int n, int R) {
    extern __shared__ float row[];
    const int first = blockIdx.x * 2 * BLOCK;
    for (int i = threadIdx.x; i < 2 * BLOCK + 2 * R; i += BLOCK) {
        const int at = first - R + i;
        row[i] = at >= 0 && at < n ? in[at] : 0.0f;
    }
    __syncthreads();
    float near = 0.0f, far = 0.0f;
    for (int k = 0; k <= 2 * R; ++k) {
        near += row[threadIdx.x + k];
        far += row[threadIdx.x + BLOCK + k];
    }
    const int here = first + threadIdx.x;
    if (here < n) out[here] = near / (2 * R + 1);
    if (here + BLOCK < n) out[here + BLOCK] = far / (2 * R + 1);
}
