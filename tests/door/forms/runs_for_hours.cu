// Launches of two kernels in turn, more of them than a processor ends in its time.
// timeout: 15
// no rewrite: the program was stopped after
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void smooth(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) b[i] = 0.25f * a[i - 1] + 0.5f * a[i] + 0.25f * a[i + 1];
}
__global__ void heat(float *a, int n, int turn) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += 1e-6f * float(turn % 7);
}
int main() {
    int n = 1 << 16;
    float *a, *b;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, n * sizeof(float));
    std::vector<float> h(n, 1.0f);
    cudaMemcpy(a, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(b, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    for (int turn = 0; turn < 100000000; ++turn) {
        smooth<<<n / 256, 256>>>(a, b, n);
        heat<<<n / 256, 256>>>(b, n, turn);
        float *last = a;
        a = b, b = last;
    }
    cudaMemcpy(h.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", h[7]);
}
