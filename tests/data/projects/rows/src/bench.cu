#include <cstdio>
#include <cstdlib>
#include <kern/api.h>
__global__ void fill(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = (i % 97) * 0.25f - 7.0f;
}
int main(int argc, char** argv) {
    int rows = atoi(argv[1]), columns = atoi(argv[2]), n = rows * columns;
    float *in, *out;
    cudaMalloc(&in, n * 4);
    cudaMalloc(&out, n * 4);
    fill<<<(n + 255) / 256, 256>>>(in, n);
    for (int i = 0; i < 4; i++) normalise(in, out, rows, columns);
    float* host = (float*)malloc(n * 4);
    cudaMemcpy(host, out, n * 4, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += host[i];
    printf("sum %.5f\n", sum);
}
