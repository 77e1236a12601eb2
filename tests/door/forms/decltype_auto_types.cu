// template arguments that only host expressions say: auto, decltype, a vector's element
#include <cstdio>
#include <numeric>
#include <type_traits>
#include <vector>

template <typename In, typename Acc>
__global__ void accumulate(const In *in, Acc *out, int n, Acc bias)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) out[i] = static_cast<Acc>(in[i]) * static_cast<Acc>(in[i]) + bias;
}

template <typename T>
using wider = std::conditional_t<(sizeof(T) < 4), int, double>;

template <typename Vec>
auto run(const Vec &host)
{
    using T = typename Vec::value_type;
    using A = wider<T>;
    T *in = nullptr;
    A *out = nullptr;
    const int n = (int)host.size();
    cudaMalloc((void **)&in, n * sizeof(T));
    cudaMalloc((void **)&out, n * sizeof(A));
    cudaMemcpy(in, host.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    auto bias = static_cast<A>(host.back());
    accumulate<<<dim3((n + 63) / 64), dim3(64)>>>(in, out, n, bias);
    std::vector<A> back(n);
    cudaMemcpy(back.data(), out, n * sizeof(A), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return std::accumulate(back.begin(), back.end(), A{});
}

int main()
{
    std::vector<short> shorts(777);
    std::iota(shorts.begin(), shorts.end(), short(-300));
    std::vector<float> floats(1000);
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = 0.5f * float(i % 9);
    std::printf("shorts %d\n", run(shorts));
    std::printf("floats %.3f\n", run(floats));
}
