// defaults in a namespace, a template among the overloads, and no argument at all
#include <cstdio>

namespace fx {
__device__ float state[256];
__global__ void reset() { state[threadIdx.x] = 1.0f; }
__global__ void reset(float value, float step = 0.5f) { state[threadIdx.x] = value + step * threadIdx.x; }
template <typename T>
__global__ void gather(T *out, int n, T bias = T(2)) { int i = threadIdx.x; if (i < n) out[i] = T(state[i]) + bias; }
__global__ void gather(double *out, int n) { int i = threadIdx.x; if (i < n) out[i] = state[i]; }
}

template <typename T> static double sum_of(const T *p) { double s = 0; for (int i = 0; i < 256; ++i) s += p[i]; return s; }

int main()
{
    float *f; double *d; int *k;
    cudaMallocManaged(&f, 256 * sizeof *f);
    cudaMallocManaged(&d, 256 * sizeof *d);
    cudaMallocManaged(&k, 256 * sizeof *k);
    fx::reset<<<1, 256>>>();
    fx::gather<<<1, 256>>>(d, 256);
    fx::reset<<<1, 256>>>(3.0f);
    fx::gather<<<1, 256>>>(f, 256);
    fx::gather<<<1, 256>>>(k, 256);
    cudaDeviceSynchronize();
    std::printf("%g %g %g\n", sum_of(f), sum_of(d), sum_of(k));
    cudaFree(f); cudaFree(d); cudaFree(k);
}
