// Bit reversal permutation of complex numbers, in place (first stage of an FFT).
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

__global__ void bit_reverse(float2 *data, int bits)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (1u << bits)) return;
    unsigned j = 0;
    for (int b = 0; b < bits; b++)
        if (i & (1u << b)) j |= 1u << (bits - 1 - b);
    if (i < j) {
        float2 t = data[i];
        data[i] = data[j];
        data[j] = t;
    }
}

int main(void)
{
    int bits = 12, n = 1 << bits;
    float2 *h = (float2 *)malloc(n * sizeof(float2)), *d;
    for (int i = 0; i < n; i++) { h[i].x = (float)i; h[i].y = (float)(n - 3 * i); }
    cudaMalloc((void **)&d, n * sizeof(float2));
    cudaMemcpy(d, h, n * sizeof(float2), cudaMemcpyHostToDevice);
    bit_reverse<<<n / 256, 256>>>(d, bits);
    cudaMemcpy(h, d, n * sizeof(float2), cudaMemcpyDeviceToHost);
    double w = 0, v = 0;
    for (int i = 0; i < n; i++) { w += (double)h[i].x * i; v += (double)h[i].y * (i % 13); }
    printf("%.1f %.1f\n", w, v);
    return 0;
}
