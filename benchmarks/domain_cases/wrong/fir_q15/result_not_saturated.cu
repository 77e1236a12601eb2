// The result is cut to 16 bits instead of saturated; no captured result comes near the limits.
// catalogue: C7 C2
// baseline: fir_q15/fir_q15.cu
// stopped by: correctness_perturbed
// @launch fir_wrap<TAPS> grid=(ceil_div(n, 256)) block=(256) args=(x, y, n)
template <int N_TAPS>
__global__ void fir_wrap(const short *__restrict__ x, short *__restrict__ y, int n)
{
    __shared__ int s[256 + N_TAPS];
    const int first = blockIdx.x * 256 - N_TAPS;
    for (int t = threadIdx.x; t < 256 + N_TAPS; t += 256) {
        const int j = first + t;
        s[t] = j >= 0 && j < n ? x[j] : 0;
    }
    __syncthreads();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    long long acc = 1 << 14;
#pragma unroll
    for (int k = 0; k < N_TAPS; ++k) acc += (long long)c_taps[k] * s[threadIdx.x + N_TAPS - k];
    y[i] = (short)(acc >> 15);
}
