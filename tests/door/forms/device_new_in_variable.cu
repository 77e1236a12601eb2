#include <cstdio>
#include <cuda_runtime.h>
struct Shape { __device__ virtual float at(float x) const = 0; };
struct Line : Shape { float slope; __device__ Line(float s) : slope(s) {} __device__ float at(float x) const override { return slope * x; } };
__device__ Shape* shape;
__global__ void make() { shape = new Line(2.0f); }
__global__ void render(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float s = 0; for (int k = 0; k < 64; ++k) s += shape->at(i * 0.5f + k); out[i] = s; }
}
__global__ void halve(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] *= 0.5f;
}
int main() {
    int n = 1 << 14; float* d; cudaMalloc(&d, n * 4);
    make<<<1, 1>>>();
    render<<<n / 256, 256>>>(d, n);
    halve<<<n / 256, 256>>>(d, n);
    float v; cudaMemcpy(&v, d + 70, 4, cudaMemcpyDeviceToHost);
    printf("%g\n", v);
}
