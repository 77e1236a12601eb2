// Value and index are packed into one ordered 64-bit key (order-preserving float bits, complemented index), reduced by shuffles and one atomicMax a warp.
// baseline: row_argmax/row_argmax.cu
// @requires blockDim.x == 128 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(gridDim.x) block=(256) args=(a, where, cols)
__global__ void fast(const float* a, int* where, int cols)
{
    __shared__ unsigned long long top;
    if (threadIdx.x == 0) top = 0;
    __syncthreads();
    const float* row = a + (size_t)blockIdx.x * cols;
    unsigned long long key = 0;                    // stands for "nothing above -inf"
    for (int c = threadIdx.x; c < cols; c += 256) {
        const float v = row[c] + 0.0f;             // -0 becomes +0: they are equal
        if (!(v > -INFINITY)) continue;            // -inf and NaN never win
        unsigned bits = __float_as_uint(v);
        bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        const unsigned long long k = (unsigned long long)bits << 32 | (0xffffffffu - (unsigned)c);
        key = k > key ? k : key;
    }
    for (int d = 16; d; d >>= 1) {
        const unsigned long long k = __shfl_xor_sync(0xffffffffu, key, d);
        key = k > key ? k : key;
    }
    if ((threadIdx.x & 31) == 0) atomicMax(&top, key);
    __syncthreads();
    if (threadIdx.x == 0) where[blockIdx.x] = top ? (int)(0xffffffffu - (unsigned)top) : -1;
}
