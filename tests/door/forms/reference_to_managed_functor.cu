// a kernel template whose functor is a const reference: nvcc hands over its address
#include <cstdio>
#include <cstdlib>

struct Polynomial {
    float c[4];
    __host__ __device__ float operator()(float x) const { return c[0] + x * (c[1] + x * (c[2] + x * c[3])); }
};

template <class F>
__global__ void map(F const &f, const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = f(in[i]);
}

int main()
{
    const int n = 1000;
    float *in, *out;
    Polynomial *p;
    cudaMallocManaged(&in, n * sizeof(float));
    cudaMallocManaged(&out, n * sizeof(float));
    cudaMallocManaged(&p, sizeof *p);
    *p = {{1.f, -2.f, 0.5f, 0.25f}};
    for (int i = 0; i < n; ++i)
        in[i] = float(i % 16) * 0.25f;
    map<<<(n + 127) / 128, 128>>>(*p, in, out, n);
    cudaDeviceSynchronize();
    int wrong = 0;
    double sum = 0;
    for (int i = 0; i < n; ++i) {
        wrong += out[i] != (*p)(in[i]);
        sum += out[i];
    }
    printf("wrong %d sum %.4f\n", wrong, sum);
    cudaFree(in);
    cudaFree(out);
    cudaFree(p);
    return 0;
}
