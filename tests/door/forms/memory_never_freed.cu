// Memory is held by an object of the program, and freed when the program ends; the rest never is.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
struct Pool {
    std::vector<float*> all;
    float* take(size_t n) { float* p; cudaMalloc(&p, n * sizeof(float)); all.push_back(p); return p; }
    Pool() { take(16); }
    ~Pool() { for (float* p : all) cudaFree(p); }
};
static Pool pool;
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
int main() {
    const int n = 4096, rounds = 40;
    std::vector<float> h(n, 1.5f);
    float* last = nullptr;
    for (int r = 0; r < rounds; ++r) {
        float *a = pool.take(n), *b, *c = pool.take(n);
        cudaMalloc(&b, n * sizeof(float));  // never freed
        cudaMemcpy(a, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
        cudaMemcpy(b, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
        add<<<n / 256, 256>>>(a, b, c, n);
        last = c;
    }
    cudaMemcpy(h.data(), last, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", h[7]);
    return 0;
}
