// functors composed by a helper function, the kernel's type argument deduced from the result
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

template <class F, class G>
struct Composed {
    F f;
    G g;
    __host__ __device__ float operator()(float x) const { return f(g(x)); }
};
template <class F, class G>
Composed<F, G> compose(F f, G g) { return {f, g}; }

struct Scale { float k; __host__ __device__ float operator()(float x) const { return k * x; } };
struct Shift { float d; __host__ __device__ float operator()(float x) const { return x + d; } };

template <class Op>
__global__ void transform(float *x, int n, Op op) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = op(x[i]);
}

int main() {
    const int n = 3000;
    std::vector<float> h(n);
    for (int i = 0; i < n; ++i) h[i] = float(i % 11);
    float *x;
    cudaMalloc(&x, n * sizeof(float));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    transform<<<(n + 127) / 128, 128>>>(x, n, compose(Scale{2.f}, Shift{1.f}));
    transform<<<(n + 127) / 128, 128>>>(x, n, compose(compose(Shift{0.5f}, Scale{3.f}), Scale{0.25f}));
    cudaMemcpy(h.data(), x, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : h) sum += v;
    std::printf("sum %.6f first %g last %g\n", sum, h[0], h[n - 1]);
    cudaFree(x);
    return 0;
}
