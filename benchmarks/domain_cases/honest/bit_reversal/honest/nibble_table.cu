// The index is reversed four bits at a time by a table in constant memory; complex numbers move as 64-bit words.
// baseline: bit_reversal/bit_reversal.cu
// @requires bits >= 1 && bits <= 16 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1 && aligned(data, 8)
// @launch fast grid=(gridDim.x) block=(blockDim.x) args=(data, bits)
__constant__ unsigned char REVERSED[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
__global__ void fast(float2* data, int bits)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >> bits) return;
    const unsigned full = REVERSED[i & 15] << 12 | REVERSED[i >> 4 & 15] << 8 | REVERSED[i >> 8 & 15] << 4 | REVERSED[i >> 12 & 15];
    const unsigned j = full >> (16 - bits);
    if (i >= j) return;
    unsigned long long* words = reinterpret_cast<unsigned long long*>(data);
    const unsigned long long a = words[i], b = words[j];
    words[i] = b;
    words[j] = a;
}
