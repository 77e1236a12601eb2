// Written for cudaops: nested namespaces, a template launched with deduced arguments, two instances.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

namespace signal { namespace detail {
template <typename T>
__device__ inline T squared(T x) { return x * x; }
}  // namespace detail

template <typename T>
__global__ void energy(const T* samples, T* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = detail::squared(samples[i]) + out[i];
}
}  // namespace signal

template <typename T>
double run(int n) {
    std::vector<T> h(n), r(n);
    for (int i = 0; i < n; i++) h[i] = T(i % 19) / T(4);
    T *a, *b;
    cudaMalloc(&a, n * sizeof(T));
    cudaMalloc(&b, n * sizeof(T));
    cudaMemcpy(a, h.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    cudaMemset(b, 0, n * sizeof(T));
    for (int k = 0; k < 2; k++) signal::energy<<<(n + 63) / 64, 64>>>(a, b, n);
    cudaMemcpy(r.data(), b, n * sizeof(T), cudaMemcpyDeviceToHost);
    double s = 0;
    for (T v : r) s += v;
    cudaFree(a);
    cudaFree(b);
    return s;
}

int main() {
    printf("checksum %.6e\n", run<float>(6000));
    printf("checksum %.6e\n", run<double>(500));
    return 0;
}
