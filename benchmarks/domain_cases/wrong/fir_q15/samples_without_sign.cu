// Samples are loaded in pairs and the lower one keeps no sign; the captured signal of a 12-bit converter is never negative.
// catalogue: C7
// baseline: fir_q15/fir_q15.cu
// stopped by: correctness_perturbed
// @requires aligned(x, 4) && n % 2 == 0
// @launch fir_pairs<TAPS> grid=(ceil_div(n, 256)) block=(256) args=(x, y, n)
template <int N_TAPS>
__global__ void fir_pairs(const short *__restrict__ x, short *__restrict__ y, int n)
{
    __shared__ int s[256 + N_TAPS];
    const unsigned *w = reinterpret_cast<const unsigned *>(x);
    const int first = (int)blockIdx.x * 128 - N_TAPS / 2;
    for (int t = threadIdx.x; t < 128 + N_TAPS / 2; t += 256) {
        const int j = first + t;
        const unsigned two = j >= 0 && 2 * j < n ? w[j] : 0u;
        s[2 * t] = two & 0xffff;
        s[2 * t + 1] = (int)two >> 16;
    }
    __syncthreads();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    long long acc = 0;
#pragma unroll
    for (int k = 0; k < N_TAPS; ++k) acc += (long long)c_taps[k] * s[threadIdx.x + N_TAPS - k];
    acc = (acc + (1 << 14)) >> 15;
    y[i] = (short)(acc > 32767 ? 32767 : acc < -32768 ? -32768 : acc);
}
