// One warp a row, merged by shuffles with the author's rule: larger value, then smaller index.
// baseline: row_argmax/row_argmax.cu
// @requires blockDim.x == 128 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(gridDim.x, 4)) block=(128) args=(a, where, cols, gridDim.x)
__global__ void fast(const float* a, int* where, int cols, int rows)
{
    const int lane = threadIdx.x & 31, r = blockIdx.x * 4 + threadIdx.x / 32;
    if (r >= rows) return;
    const float* row = a + (size_t)r * cols;
    float best = -INFINITY;
    unsigned arg = 0xffffffffu;                    // -1; as the largest unsigned it loses every tie
    for (int c = lane; c < cols; c += 32) {
        const float v = row[c];
        if (v > best) { best = v; arg = c; }
    }
    for (int d = 16; d; d >>= 1) {
        const float v = __shfl_down_sync(0xffffffffu, best, d);
        const unsigned i = __shfl_down_sync(0xffffffffu, arg, d);
        if (v > best || (v == best && i < arg)) { best = v; arg = i; }
    }
    if (lane == 0) where[r] = (int)arg;
}
