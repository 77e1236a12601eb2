// A thread slides a window of five over four consecutive samples and stores nothing where there is no peak.
// baseline: mark_peaks/mark_peaks.cu
// @requires n > 4 && gridDim.x * blockDim.x >= n && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 256)) block=(64) args=(signal, peaks, n, floor_level)
__global__ void fast(const float* __restrict__ signal, float* __restrict__ peaks, int n, float floor_level)
{
    const int first = (blockIdx.x * 64 + threadIdx.x) * 4;
    float w[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int j = first + k - 2;
        w[k] = j >= 0 && j < n ? signal[j] : 0.f;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int i = first + e;
        const float s = w[e + 2];
        if (i >= 2 && i < n - 2 && s > floor_level && s > w[e] && s > w[e + 1] && s >= w[e + 3] && s >= w[e + 4]) peaks[i] = s;
    }
}
