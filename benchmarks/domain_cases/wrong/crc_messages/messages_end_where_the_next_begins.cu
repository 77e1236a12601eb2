// The length of a message is taken from the next offset, as captured messages stand back to back in order; lengths may leave gaps, overlap or go backwards.
// catalogue: C7
// baseline: crc_messages/crc_messages.cu
// stopped by: correctness_perturbed
// @launch crc_adjacent grid=(ceil_div(count, 256)) block=(256) args=(data, offset, length, count, init, xor_out, crc_out)
__global__ void crc_adjacent(const unsigned char *__restrict__ data, const int *__restrict__ offset, const int *__restrict__ length, int count,
                             unsigned int init, unsigned int xor_out, unsigned int *crc_out)
{
    __shared__ unsigned int t[256];
    __shared__ int at[257];
    int m = blockIdx.x * 256 + threadIdx.x;
    t[threadIdx.x] = d_table[threadIdx.x];
    if (m < count) {
        at[threadIdx.x] = offset[m];
        if (m == count - 1) at[threadIdx.x + 1] = offset[m] + length[m];
        else if (threadIdx.x == 255) at[256] = offset[m + 1];
    }
    __syncthreads();
    if (m >= count) return;
    unsigned int c = init;
    for (int k = at[threadIdx.x], e = at[threadIdx.x + 1]; k < e; k++) c = t[(c ^ data[k]) & 0xff] ^ (c >> 8);
    crc_out[m] = c ^ xor_out;
}
