// nvcc: -std=c++17
// a launch inside a generic host lambda: only its call says the functor's type
#include <cstdio>
#include <tuple>
#include <vector>

namespace ops {
struct add { __device__ float operator()(float a, float b) const { return a + b; } };
struct mul { __device__ float operator()(float a, float b) const { return a * b; } };
template <class Op> struct swapped { Op op; __device__ float operator()(float a, float b) const { return op(b, a) - a; } };
template <class Op> swapped<Op> flip(Op op) { return {op}; }
}

template <class Op>
__global__ void combine(const float *a, const float *b, float *c, int n, Op op)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) c[i] = op(a[i], b[i]);
}

int main()
{
    const int n = 2048;
    float *a, *b, *c;
    cudaMallocManaged(&a, n * sizeof(float));
    cudaMallocManaged(&b, n * sizeof(float));
    cudaMallocManaged(&c, n * sizeof(float));
    for (int i = 0; i < n; ++i) { a[i] = float(i % 17); b[i] = float(i % 4) + 0.5f; }
    auto apply = [&](auto op) {
        combine<<<8, 128>>>(a, b, c, n, op);
        cudaDeviceSynchronize();
        double s = 0;
        for (int i = 0; i < n; ++i) s += c[i];
        std::printf("%.3f\n", s);
    };
    std::apply([&](auto... each) { (apply(each), ...); },
               std::make_tuple(ops::add{}, ops::flip(ops::mul{}), ops::flip(ops::flip(ops::add{}))));
    cudaFree(a); cudaFree(b); cudaFree(c);
}
