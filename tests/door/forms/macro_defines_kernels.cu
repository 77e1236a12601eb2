// a macro that defines a kernel for each operation, launched by name and by another macro
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define DEFINE_UNARY(NAME, EXPR)                                          \
    __global__ void NAME##_kernel(const float *in, float *out, int n)     \
    {                                                                     \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                    \
        if (i < n) {                                                      \
            float x = in[i];                                              \
            out[i] = (EXPR);                                              \
        }                                                                 \
    }

DEFINE_UNARY(relu, x > 0.f ? x : 0.f)
DEFINE_UNARY(square, x * x)
DEFINE_UNARY(leaky, fmaxf(x, 0.125f * x))

#define RUN(NAME) NAME##_kernel<<<(n + 255) / 256, 256>>>(in, out, n)

static double sum(const float *dev, int n)
{
    std::vector<float> h(n);
    cudaMemcpy(h.data(), dev, n * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : h) s += v;
    return s;
}

int main()
{
    const int n = 10000;
    std::vector<float> h(n);
    for (int i = 0; i < n; ++i) h[i] = float(i % 21) - 10.f;
    float *in, *out;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemcpy(in, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    RUN(relu);
    printf("relu %g\n", sum(out, n));
    RUN(square);
    printf("square %g\n", sum(out, n));
    leaky_kernel<<<(n + 255) / 256, 256>>>(in, out, n);
    printf("leaky %g\n", sum(out, n));
    cudaFree(in);
    cudaFree(out);
    return 0;
}
