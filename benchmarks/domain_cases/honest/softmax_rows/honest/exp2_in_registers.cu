// A warp holds its row in registers, takes exp2f of the difference times log2(e) once per element, and sums by shuffles.
// baseline: softmax_rows/softmax_rows.cu
// @requires rows > 0 && cols <= 256 && gridDim.x * blockDim.x >= rows && gridDim.y * gridDim.z == 1
// @launch fast grid=(ceil_div(rows, 8)) block=(256) args=(logits, probs, rows, cols)
__global__ void __launch_bounds__(256) fast(const float* logits, float* probs, int rows, int cols)
{
    constexpr float LOG2E = 1.4426950408889634f;
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    const size_t base = (size_t)row * cols;
    float v[8];
    float m = -FLT_MAX;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int c = lane + 32 * k;
        v[k] = 0.0f;
        if (c < cols) { v[k] = logits[base + c]; m = fmaxf(m, v[k]); }
    }
    for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, d));
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        if (lane + 32 * k < cols) { v[k] = exp2f((v[k] - m) * LOG2E); s += v[k]; }
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
#pragma unroll
    for (int k = 0; k < 8; ++k)
        if (lane + 32 * k < cols) probs[base + lane + 32 * k] = v[k] / s;
}
