// kernel templated on a functor object that is passed by value
#include <cstdio>
#include <vector>

struct Saxpy {
    float alpha;
    __host__ __device__ float operator()(float x, float y) const { return alpha * x + y; }
};

struct ClampedDiff {
    float lo, hi;
    __host__ __device__ float operator()(float x, float y) const
    {
        float d = x - y;
        return d < lo ? lo : (d > hi ? hi : d);
    }
};

template <class F>
__global__ void zip(F f, const float *x, const float *y, float *out, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = f(x[i], y[i]);
}

template <class F>
void transform(const char *label, F f, const std::vector<float> &x, const std::vector<float> &y)
{
    const int n = (int)x.size();
    float *d;
    cudaMalloc(&d, 3 * n * sizeof(float));
    cudaMemcpy(d, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(d + n, y.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    zip<<<8, 128>>>(f, d, d + n, d + 2 * n, n);
    std::vector<float> out(n);
    cudaMemcpy(out.data(), d + 2 * n, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(d);

    int wrong = 0;
    for (int i = 0; i < n; ++i)
        wrong += out[i] != f(x[i], y[i]);
    std::printf("%-12s out[100]=%g out[%d]=%g wrong=%d\n", label, out[100], n - 1, out[n - 1], wrong);
}

int main()
{
    const int n = 5000;
    std::vector<float> x(n), y(n);
    for (int i = 0; i < n; ++i) {
        x[i] = float(i % 50);
        y[i] = float(i % 7) * 2.f;
    }
    transform("saxpy", Saxpy{0.5f}, x, y);
    transform("clamped", ClampedDiff{-3.f, 20.f}, x, y);
    return 0;
}
