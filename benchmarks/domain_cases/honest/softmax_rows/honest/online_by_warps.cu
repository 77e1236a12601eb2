// A warp walks a row once, keeping maximum and rescaled sum per lane (online softmax), merges them by shuffles and writes with one reciprocal.
// baseline: softmax_rows/softmax_rows.cu
// @requires rows > 0 && gridDim.x * blockDim.x >= rows && gridDim.y * gridDim.z == 1
// @launch fast grid=(ceil_div(rows, 4)) block=(128) args=(logits, probs, rows, cols)
__global__ void fast(const float* logits, float* probs, int rows, int cols)
{
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * 4 + (threadIdx.x >> 5);
    if (row >= rows) return;                       // a whole warp
    const float* x = logits + (size_t)row * cols;
    float* p = probs + (size_t)row * cols;
    float m = -FLT_MAX, s = 0.0f;                  // finite, so that exp(m - m) is never exp(inf - inf) of our own making
    for (int c = lane; c < cols; c += 32) {
        const float v = x[c];
        const float top = fmaxf(m, v);
        s = s * expf(m - top) + expf(v - top);
        m = top;
    }
    for (int d = 16; d; d >>= 1) {
        const float m2 = __shfl_xor_sync(0xffffffffu, m, d);
        const float s2 = __shfl_xor_sync(0xffffffffu, s, d);
        const float top = fmaxf(m, m2);
        s = s * expf(m - top) + s2 * expf(m2 - top);
        m = top;
    }
    const float scale = 1.0f / s;
    for (int c = lane; c < cols; c += 32) p[c] = expf(x[c] - m) * scale;
}
