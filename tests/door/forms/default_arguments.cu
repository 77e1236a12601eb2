// Launches that leave out arguments which have defaults: of a plain kernel, of one that is declared first, of a template.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
constexpr float usual = 2.0f;
__global__ void shift(float* p, int n, float by = 1.5f, int every = 1);
__global__ void scale(float* p, int n, float by = usual) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= by;
}
template <class T> __global__ void square(T* p, int n, int first = 0) {
    int i = first + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= p[i];
}
int main() {
    const int n = 1 << 16;
    std::vector<float> h(n, 1.0f);
    float* p;
    cudaMalloc(&p, n * sizeof(float));
    cudaMemcpy(p, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    shift<<<n / 256, 256>>>(p, n);
    for (int i = 0; i < 8; ++i) scale<<<n / 256, 256>>>(p, n /* all */);
    square<<<n / 256, 256>>>(p, n);
    cudaMemcpy(h.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", h[n - 1]);
    return h[n - 1] == 409600.0f ? 0 : 1;
}
__global__ void shift(float* p, int n, float by, int every) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * every;
    if (i < n) p[i] += by;
}
