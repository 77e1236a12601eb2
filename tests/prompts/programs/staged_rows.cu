// Written for cudaops: the mean of neighbours that exemplar staged_rows rewrites.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void smooth(const float* in, float* out, int n, int R) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = i - R; k <= i + R; ++k)
        if (k >= 0 && k < n) sum += in[k];
    out[i] = sum / (2 * R + 1);
}
int main() {
    const int n = 5003, R = 9;
    static float a[n], b[n];
    float *in, *out;
    for (int i = 0; i < n; ++i) a[i] = (i * 7 % 13) / 13.0f;
    cudaMalloc(&in, sizeof a); cudaMalloc(&out, sizeof b);
    cudaMemcpy(in, a, sizeof a, cudaMemcpyHostToDevice);
    smooth<<<(n + 127) / 128, 128>>>(in, out, n, R);
    cudaMemcpy(b, out, sizeof b, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : b) sum += v;
    printf("checksum %.6e\n", sum);
    return 0;
}
