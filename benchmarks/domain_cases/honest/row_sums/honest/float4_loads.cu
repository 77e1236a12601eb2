// A warp a row: 16-byte loads up to the last whole four, then single floats; butterflies for sum and peak.
// baseline: row_sums/row_sums.cu
// @requires rows > 0 && cols >= 0 && stride % 4 == 0 && aligned(x, 16) && gridDim.x * blockDim.x >= rows && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(rows, 4)) block=(128) args=(x, stat, rows, cols, stride)
__global__ void fast(const float* __restrict__ x, RowStat* __restrict__ stat, int rows, int cols, int stride)
{
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (row >= rows) return;
    const float* line = x + row * stride;
    float sum = 0.f, peak = 0.f;
    for (int c = lane; c < cols / 4; c += 32) {
        const float4 v = reinterpret_cast<const float4*>(line)[c];
        sum += (v.x + v.y) + (v.z + v.w);
        peak = fmaxf(fmaxf(peak, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
    }
    const int tail = cols / 4 * 4 + lane;
    if (tail < cols) { sum += line[tail]; peak = fmaxf(peak, fabsf(line[tail])); }
    for (int d = 16; d; d >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, d));
    }
    if (lane == 0) stat[row] = RowStat{sum, peak};
}
