// __brev in place of the loop, two elements a thread.
// baseline: bit_reversal/bit_reversal.cu
// @requires bits >= 1 && bits <= 30 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(gridDim.x * blockDim.x, 256)) block=(128) args=(data, bits, gridDim.x * blockDim.x)
__global__ void fast(float2* data, int bits, unsigned threads)
{
    const unsigned n = min(1u << bits, threads);         // the author's grid may cover less
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const unsigned i = blockIdx.x * 256 + e * 128 + threadIdx.x, j = __brev(i) >> (32 - bits);
        if (i < n && i < j) {
            const float2 a = data[i], b = data[j];
            data[i] = b;
            data[j] = a;
        }
    }
}
