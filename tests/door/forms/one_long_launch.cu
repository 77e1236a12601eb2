// One launch of more blocks than a processor ends in its time.
// timeout: 15
// no rewrite on cpu: did not end within
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void orbits(float *x, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 1e-6f * float(i);
    for (int k = 0; k < turns; ++k) v = 3.5f * v * (1.0f - v);
    x[i] = v;
}
int main() {
    int n = 1 << 20, turns = 1 << 16;
    float *x;
    cudaMalloc(&x, n * sizeof(float));
    orbits<<<n / 64, 64>>>(x, turns);
    std::vector<float> h(n);
    cudaMemcpy(h.data(), x, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", h[n - 1]);
}
