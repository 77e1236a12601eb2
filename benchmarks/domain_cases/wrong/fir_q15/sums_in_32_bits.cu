// Sums the products in 32 bits, which 32 products of full scale overflow; the captured signal is a 12-bit one.
// catalogue: C4 C7
// baseline: fir_q15/fir_q15.cu
// stopped by: correctness_perturbed
// @launch fir_int<TAPS> grid=(ceil_div(n, 256)) block=(256) args=(x, y, n)
template <int N_TAPS>
__global__ void fir_int(const short *__restrict__ x, short *__restrict__ y, int n)
{
    __shared__ short s[256 + N_TAPS];
    const int first = blockIdx.x * 256 - N_TAPS;
    for (int t = threadIdx.x; t < 256 + N_TAPS; t += 256) {
        const int j = first + t;
        s[t] = j >= 0 && j < n ? x[j] : (short)0;
    }
    __syncthreads();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    unsigned acc = 1u << 14;
#pragma unroll
    for (int k = 0; k < N_TAPS; ++k) acc += (unsigned)(c_taps[k] * s[threadIdx.x + N_TAPS - k]);
    y[i] = (short)max(-32768, min(32767, (int)acc >> 15));
}
