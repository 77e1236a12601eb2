#include <stdio.h>
#include <stdlib.h>
#include <chrono>
#include <vector>
struct Sphere { float x, y, z, radius; };
typedef struct { int lights; } Scene;
extern "C" {
__device__ __forceinline__ float term(Sphere s, int i) { return s.radius * (s.x + i) * s.y + s.z; }
__global__ void shade_shared(const Sphere* __restrict__ spheres, float* __restrict__ out, int n, int count) {
    __shared__ Sphere tile[64];
    for (int k = threadIdx.x; k < count; k += blockDim.x) tile[k] = spheres[k];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < count; ++k) sum += term(tile[k], i);
    out[i] = sum;
}
}
__global__ void shade(const Sphere* spheres, float* out, int n, int count) { }
static void print_time(double ms) { fprintf(stderr, "%f\n", ms); }
int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4096, count = 64;
    std::vector<Sphere> h(count);
    for (int k = 0; k < count; ++k) h[k] = Sphere{k * 0.5f, k * 0.25f, 1.0f + k, 0.125f};
    Sphere* d; float* o; std::vector<float> r(n);
    cudaMalloc(&d, count * sizeof(Sphere)); cudaMalloc(&o, n * sizeof(float));
    cudaMemcpy(d, h.data(), count * sizeof(Sphere), cudaMemcpyHostToDevice);
    auto t = std::chrono::steady_clock::now();
    shade_shared<<<(n + 255) / 256, 256>>>(d, o, n, count);
    cudaDeviceSynchronize();
    print_time(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count());
    cudaMemcpy(r.data(), o, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0; for (float v : r) sum += v;
    printf("%g\n", sum);
    return 0;
}
