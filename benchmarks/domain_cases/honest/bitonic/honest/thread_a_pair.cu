// Half the threads, each with a pair of its own: the lower index has a zero put in at bit j; values move by min and max.
// baseline: bitonic/bitonic.cu
// @requires j > 0 && j <= 1073741824 && 1073741824 % j == 0 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1 && gridDim.x * blockDim.x % (2 * j) == 0
// @launch fast grid=(ceil_div(gridDim.x * blockDim.x / 2, 128)) block=(128) args=(values, j, k, gridDim.x * blockDim.x / 2)
__global__ void fast(int* values, int j, int k, unsigned pairs)
{
    const unsigned p = blockIdx.x * 128 + threadIdx.x;
    if (p >= pairs) return;
    const unsigned i = (p & ~(unsigned)(j - 1)) << 1 | (p & (unsigned)(j - 1)), other = i | (unsigned)j;
    const int a = values[i], b = values[other];
    const bool up = (i & (unsigned)k) == 0;
    values[i] = up ? min(a, b) : max(a, b);
    values[other] = up ? max(a, b) : min(a, b);
}
