// not yet: a program whose kernels are all Thrust's
// No kernel of its own: a lambda given to thrust::for_each. nvcc: --extended-lambda
#include <cstdio>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
int main() {
    const int n = 100000;
    float *v;
    cudaMallocManaged(&v, n * sizeof(float));
    for (int i = 0; i < n; ++i) v[i] = i;
    auto at = thrust::make_counting_iterator(0);
    thrust::for_each(thrust::device, at, at + n, [=] __device__(int i) { v[i] *= 2; });
    cudaDeviceSynchronize();
    printf("%g\n", v[n - 1]);
}
