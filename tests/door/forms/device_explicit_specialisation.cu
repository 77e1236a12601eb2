// device function template with explicit specialisations for float4 and double2
#include <cstdio>
#include <cuda_runtime.h>

template <typename V>
__device__ double horizontal(V v) { return v; } // scalars

template <>
__device__ double horizontal<float4>(float4 v) { return (double)v.x + v.y + v.z + v.w; }

template <>
__device__ double horizontal<double2>(double2 v) { return v.x + v.y; }

template <typename V>
__global__ void sum_vectors(const V *in, double *out, int n)
{
    int t = threadIdx.x;
    double acc = 0;
    for (int i = t; i < n; i += blockDim.x)
        acc += horizontal(in[i]);
    for (int d = 16; d > 0; d >>= 1)
        acc += __shfl_down_sync(0xffffffffu, acc, d);
    __shared__ double warp[32];
    if (t % 32 == 0)
        warp[t / 32] = acc;
    __syncthreads();
    if (t == 0) {
        double total = 0;
        for (int w = 0; w < (int)blockDim.x / 32; ++w)
            total += warp[w];
        *out = total;
    }
}

template <typename V>
double run(const V *in, double *out, int n)
{
    *out = -1;
    sum_vectors<V><<<1, 256>>>(in, out, n);
    cudaDeviceSynchronize();
    return *out;
}

int main()
{
    const int n = 3000;
    int *vi;
    float4 *vf;
    double2 *vd;
    double *out;
    cudaMallocManaged(&vi, n * sizeof(int));
    cudaMallocManaged(&vf, n * sizeof(float4));
    cudaMallocManaged(&vd, n * sizeof(double2));
    cudaMallocManaged(&out, sizeof(double));
    for (int i = 0; i < n; ++i) {
        vi[i] = i;
        vf[i] = make_float4(i % 2, i % 3, 0.5f, -1.0f);
        vd[i] = make_double2(i * 0.5, -i * 0.25);
    }
    std::printf("int     %.2f\n", run(vi, out, n));
    std::printf("float4  %.2f\n", run(vf, out, n));
    std::printf("double2 %.2f\n", run(vd, out, n));
    cudaFree(vi); cudaFree(vf); cudaFree(vd); cudaFree(out);
    return 0;
}
