// Neumaier's compensated sum in each of eight lanes a row; a correction that is not finite is left out, so infinities come out as they do plainly.
// baseline: row_sums/row_sums.cu
// @requires rows > 0 && gridDim.x * blockDim.x >= rows && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(rows, 16)) block=(128) args=(x, stat, rows, cols, stride)
__global__ void fast(const float* __restrict__ x, RowStat* __restrict__ stat, int rows, int cols, int stride)
{
    const int row = blockIdx.x * 16 + threadIdx.x / 8, part = threadIdx.x & 7;
    float sum = 0.f, lost = 0.f, peak = 0.f;
    if (row < rows)
        for (int c = part; c < cols; c += 8) {
            const float v = x[row * stride + c];
            const float t = __fadd_rn(sum, v);
            lost += fabsf(sum) >= fabsf(v) ? __fadd_rn(__fsub_rn(sum, t), v) : __fadd_rn(__fsub_rn(v, t), sum);
            sum = t;
            peak = fmaxf(peak, fabsf(v));
        }
    for (int d = 1; d < 8; d <<= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        lost += __shfl_xor_sync(0xffffffffu, lost, d);
        peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, d));
    }
    if (row < rows && part == 0) stat[row] = RowStat{isfinite(lost) ? sum + lost : sum, peak};
}
