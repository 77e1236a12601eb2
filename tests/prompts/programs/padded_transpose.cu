// Written for cudaops: the transpose that exemplar padded_transpose rewrites.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void flip(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}
int main() {
    const int width = 71, height = 45;
    static float a[width * height], b[width * height];
    float *in, *out;
    for (int i = 0; i < width * height; ++i) a[i] = (i * 7 % 1009) / 13.0f;
    cudaMalloc(&in, sizeof a); cudaMalloc(&out, sizeof b);
    cudaMemcpy(in, a, sizeof a, cudaMemcpyHostToDevice);
    flip<<<dim3((width + 15) / 16, (height + 15) / 16), dim3(16, 16)>>>(in, out, width, height);
    cudaMemcpy(b, out, sizeof b, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < width * height; ++i) sum += b[i] * (i % 11);
    printf("checksum %.6e\n", sum);
    return 0;
}
