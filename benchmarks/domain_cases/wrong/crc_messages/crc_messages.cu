// CRC-32 of many messages that stand in one byte array; the table lives in constant memory.
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

__constant__ unsigned int d_table[256];

__device__ __forceinline__ unsigned int step(unsigned int crc, unsigned char byte)
{
    return d_table[(crc ^ byte) & 0xff] ^ (crc >> 8);
}

__global__ void crc_kernel(const unsigned char *data, const int *offset, const int *length, int count, unsigned int init,
                           unsigned int xor_out, unsigned int *crc_out)
{
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m < count) {
        const unsigned char *p = data + offset[m];
        unsigned int c = init;
        for (int k = 0; k < length[m]; k++) c = step(c, p[k]);
        crc_out[m] = c ^ xor_out;
    }
}

int main(void)
{
    const int count = 2048;
    unsigned int table[256];
    for (unsigned int i = 0; i < 256; i++) {
        unsigned int c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        table[i] = c;
    }
    int *offset = (int *)malloc(count * sizeof(int)), *length = (int *)malloc(count * sizeof(int)), total = 0;
    srand(7);
    for (int m = 0; m < count; m++) {
        length[m] = 4 * (4 + (m * 37) % 12);
        offset[m] = total;
        total += length[m];
    }
    unsigned char *data = (unsigned char *)malloc(total);
    for (int i = 0; i < total; i++) data[i] = (unsigned char)("the quick brown fox jumps over the lazy dog"[(i * 7 + i / 43) % 43]);
    unsigned char *d_data; int *d_off, *d_len; unsigned int *d_crc;
    cudaMalloc((void **)&d_data, total);
    cudaMalloc((void **)&d_off, count * sizeof(int));
    cudaMalloc((void **)&d_len, count * sizeof(int));
    cudaMalloc((void **)&d_crc, count * sizeof(unsigned int));
    cudaMemcpyToSymbol(d_table, table, sizeof(table));
    cudaMemcpy(d_data, data, total, cudaMemcpyHostToDevice);
    cudaMemcpy(d_off, offset, count * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(d_len, length, count * sizeof(int), cudaMemcpyHostToDevice);
    crc_kernel<<<count / 64, 64>>>(d_data, d_off, d_len, count, 0xffffffffu, 0xffffffffu, d_crc);
    unsigned int *crc = (unsigned int *)malloc(count * sizeof(unsigned int)), all = 0;
    cudaMemcpy(crc, d_crc, count * sizeof(unsigned int), cudaMemcpyDeviceToHost);
    for (int m = 0; m < count; m++) all = all * 31u + crc[m];
    printf("%d bytes, first %08x, all %08x\n", total, crc[0], all);
    return 0;
}
