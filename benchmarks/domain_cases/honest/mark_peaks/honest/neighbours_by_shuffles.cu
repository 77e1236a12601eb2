// Neighbours come by shuffles; a warp covers 28 samples with two lanes of overlap at each end.
// baseline: mark_peaks/mark_peaks.cu
// @requires n > 4 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 112)) block=(128) args=(signal, peaks, n, floor_level)
__global__ void fast(const float* __restrict__ signal, float* __restrict__ peaks, int n, float floor_level)
{
    const int lane = threadIdx.x & 31, i = (blockIdx.x * 4 + threadIdx.x / 32) * 28 + lane - 2;
    const float s = i >= 0 && i < n ? signal[i] : 0.f;
    const float l1 = __shfl_up_sync(0xffffffffu, s, 1), l2 = __shfl_up_sync(0xffffffffu, s, 2);
    const float r1 = __shfl_down_sync(0xffffffffu, s, 1), r2 = __shfl_down_sync(0xffffffffu, s, 2);
    if (lane < 2 || lane >= 30 || i < 2 || i >= n - 2) return;
    if (s > floor_level && s > l1 && s > l2 && s >= r1 && s >= r2) peaks[i] = s;
}
