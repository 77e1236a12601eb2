// Takes four bytes in each step and leaves the rest of a message out; all captured lengths are multiples of four.
// catalogue: C7 C1
// baseline: crc_messages/crc_messages.cu
// stopped by: correctness_perturbed
// @launch crc_words grid=(ceil_div(count, 128)) block=(128) args=(data, offset, length, count, init, xor_out, crc_out)
__global__ void crc_words(const unsigned char *__restrict__ data, const int *__restrict__ offset, const int *__restrict__ length, int count,
                          unsigned int init, unsigned int xor_out, unsigned int *crc_out)
{
    __shared__ unsigned int t[256];
    t[threadIdx.x] = d_table[threadIdx.x];
    t[threadIdx.x + 128] = d_table[threadIdx.x + 128];
    __syncthreads();
    int m = blockIdx.x * 128 + threadIdx.x;
    if (m >= count) return;
    const unsigned char *p = data + offset[m];
    unsigned int c = init;
    for (int k = length[m] >> 2; k > 0; k--, p += 4) {
        c ^= p[0] | p[1] << 8 | p[2] << 16 | (unsigned int)p[3] << 24;
#pragma unroll
        for (int b = 0; b < 4; b++) c = t[c & 0xff] ^ (c >> 8);
    }
    crc_out[m] = c ^ xor_out;
}
