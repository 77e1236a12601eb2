// A warp scans a row 32 values at a time by shuffles and carries the total on.
// baseline: running_totals/running_totals.cu
// @requires rows > 0 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(rows, 4)) block=(128) args=(in, out, rows, cols)
__global__ void fast(const float* __restrict__ in, float* __restrict__ out, int rows, int cols)
{
    const int r = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (r >= rows) return;
    float carry = 0.f;
    for (int first = 0; first < cols; first += 32) {
        const int c = first + lane;
        float v = c < cols ? in[r * cols + c] : 0.f;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const float left = __shfl_up_sync(0xffffffffu, v, d);
            if (lane >= d) v += left;
        }
        v += carry;
        if (c < cols) out[r * cols + c] = v;
        carry = __shfl_sync(0xffffffffu, v, 31);
    }
}
