// A table of device pointers, copied to the device: rows are reached through it.
#include <cstdio>
__global__ void add_rows(float **rows, float *out, int n, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w) return;
    float s = 0;
    for (int r = 0; r < n; ++r) s += rows[r][i];
    out[i] = s;
}
int main() {
    const int n = 8, w = 4096;
    float *rows[n], **d, *out, h = 0;
    for (int r = 0; r < n; ++r) {
        cudaMalloc(&rows[r], w * sizeof(float));
        cudaMemset(rows[r], 0, w * sizeof(float));
    }
    cudaMalloc(&d, sizeof rows);
    cudaMemcpy(d, rows, sizeof rows, cudaMemcpyHostToDevice);
    cudaMalloc(&out, w * sizeof(float));
    add_rows<<<w / 256, 256>>>(d, out, n, w);
    cudaMemcpy(&h, out, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\n", h);
}
