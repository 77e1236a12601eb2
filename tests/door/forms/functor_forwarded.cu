// no rewrite: arguments, the launch gives 2
// nvcc: -std=c++17
// a variadic launcher: nothing at the launch says what the kernel's type arguments are
#include <cstdio>
#include <type_traits>
#include <utility>
#include <vector>

template <class T> struct Slice { T *data; int count; __host__ __device__ T &operator[](int i) const { return data[i]; } };
template <class T> Slice<T> slice(T *p, int n) { return {p, n}; }

template <class Dst, class... Src>
__global__ void sum_into(Dst dst, Src... src)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < dst.count) dst[i] = (src[i] + ...);
}

struct Launcher {
    int threads;
    template <class Dst, class... Src>
    void operator()(Dst &&dst, Src &&...src) const
    {
        int blocks = (dst.count + threads - 1) / threads;
        sum_into<<<blocks, threads>>>(std::forward<Dst>(dst), std::forward<Src>(src)...);
    }
};

int main()
{
    const int n = 1500;
    int *a, *b;
    long long *c;
    cudaMallocManaged(&a, n * sizeof(int));
    cudaMallocManaged(&b, n * sizeof(int));
    cudaMallocManaged(&c, n * sizeof(long long));
    for (int i = 0; i < n; ++i) { a[i] = i; b[i] = i % 10; c[i] = 1000000000LL * (i % 3); }
    const auto out = slice(c, n);
    Launcher launch{96};
    launch(out, slice(a, n), slice(b, n), out);
    launch(slice(a, n), slice(b, n), slice(b, n));
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    long long s = 0, t = 0;
    for (int i = 0; i < n; ++i) { s += c[i]; t += a[i]; }
    std::printf("%lld %lld\n", s, t);
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
}
