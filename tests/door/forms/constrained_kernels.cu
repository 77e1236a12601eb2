// nvcc: -std=c++20
// Kernel templates with conditions, one of them in an unnamed namespace, launched from templates.
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>
#include <cuda_runtime.h>
template <typename T>
concept Added = requires(T a, T b) { { a + b } -> std::convertible_to<T>; };
namespace {
template <typename T>
    requires Added<T> && std::is_copy_assignable_v<T>
__global__ void add(T *s, T x, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] += x;
}
template <typename T>
    requires(sizeof(T) == 4) && requires(T a) { a * a; }
static __global__ void __launch_bounds__(64) times(T *s, T x, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) s[r] *= x;
}
}
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
template <typename T>
    requires std::floating_point<T>
void moved(T *s, T by, int rows) {
    add<<<(rows + 31) / 32, 32>>>(s, by, rows);
    times<<<(rows + 31) / 32, 32>>>(s, by, rows);
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    moved(s, 2.0f, rows);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
