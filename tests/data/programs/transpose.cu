// Written for cudaops: a transpose with strided writes: transpose [width height].
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

__global__ void flip(const float *src, float *dst, int width, int height)
{
    int x = threadIdx.x + blockIdx.x * blockDim.x;
    int y = threadIdx.y + blockIdx.y * blockDim.y;
    if (x < width && y < height)
        dst[x * height + y] = src[y * width + x];
}

int main(int argc, char **argv)
{
    int width = argc > 2 ? atoi(argv[1]) : 100, height = argc > 2 ? atoi(argv[2]) : 70;
    int count = width * height;
    float *in = (float *)malloc(count * sizeof(float)), *out = (float *)malloc(count * sizeof(float));
    for (int i = 0; i < count; i++) in[i] = (i % 1009) * 0.25f;
    float *d_in, *d_out;
    cudaMalloc((void **)&d_in, count * sizeof(float));
    cudaMalloc((void **)&d_out, count * sizeof(float));
    cudaMemcpy(d_in, in, count * sizeof(float), cudaMemcpyHostToDevice);
    dim3 block(16, 16), grid((width + 15) / 16, (height + 15) / 16);
    flip<<<grid, block>>>(d_in, d_out, width, height);
    cudaDeviceSynchronize();
    cudaMemcpy(out, d_out, count * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (int i = 0; i < count; i++) s += out[i] * (i % 7);
    printf("checksum %.6e\ncorners %.6f %.6f %.6f %.6f\n", s, out[0], out[height - 1],
           out[(width - 1) * height], out[count - 1]);
    cudaFree(d_in); cudaFree(d_out); free(in); free(out);
    return 0;
}
