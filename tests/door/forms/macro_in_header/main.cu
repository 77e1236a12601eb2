// kernels and their launchers made by a macro of a header, in a namespace, as templates
#include <cstdio>
#include "binary.cuh"

BINARY_OP(plus, +)
BINARY_OP(minus, -)
BINARY_OP(times, *)

int main()
{
    const size_t n = 5000;
    float *a, *b, *c;
    cudaMallocManaged(&a, n * sizeof(float));
    cudaMallocManaged(&b, n * sizeof(float));
    cudaMallocManaged(&c, n * sizeof(float));
    for (size_t i = 0; i < n; ++i) a[i] = (float)(i % 23), b[i] = (float)(i % 6) + 1;
    double s[3] = {};
    run_plus(a, b, c, n);
    cudaDeviceSynchronize();
    for (size_t i = 0; i < n; ++i) s[0] += c[i];
    run_minus(a, b, c, n);
    cudaDeviceSynchronize();
    for (size_t i = 0; i < n; ++i) s[1] += c[i];
    run_times(a, b, c, n);
    cudaDeviceSynchronize();
    for (size_t i = 0; i < n; ++i) s[2] += c[i];
    printf("%.1f %.1f %.1f\n", s[0], s[1], s[2]);
    cudaFree(a), cudaFree(b), cudaFree(c);
    return 0;
}
