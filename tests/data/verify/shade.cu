#include <cstdio>
#include <cstdlib>
#include <vector>
struct Sphere { float x, y, z, radius; };
typedef struct { int lights; } Scene;
#define TILE 16
__global__ void shade(const Sphere* spheres, float* out, int n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < count; ++k) {
        Sphere s = spheres[k];
        sum += s.radius * (s.x + i) * s.y + s.z;
    }
    out[i] = sum;
}
int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4096, count = 64;
    std::vector<Sphere> h(count);
    for (int k = 0; k < count; ++k) h[k] = Sphere{k * 0.5f, k * 0.25f, 1.0f + k, 0.125f};
    Sphere* d; float* o; std::vector<float> r(n);
    cudaMalloc(&d, count * sizeof(Sphere)); cudaMalloc(&o, n * sizeof(float));
    cudaMemcpy(d, h.data(), count * sizeof(Sphere), cudaMemcpyHostToDevice);
    shade<<<(n + 127) / 128, 128>>>(d, o, n, count);
    cudaMemcpy(r.data(), o, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0; for (float v : r) sum += v;
    printf("%g\n", sum);
    return 0;
}
