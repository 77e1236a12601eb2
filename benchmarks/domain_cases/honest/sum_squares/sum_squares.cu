// Squared norm: tree in shared memory, one atomicAdd per block.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void sum_squares(const float* v, float* result, int n)
{
    extern __shared__ float cache[];
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) mine += v[i] * v[i];
    cache[threadIdx.x] = mine;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) cache[threadIdx.x] += cache[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(result, cache[0]);
}

int main(int argc, char** argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 20011;
    float* h = new float[n];
    for (int i = 0; i < n; ++i) h[i] = (float)((i * 7 + 3) % 1009) / 1009.0f - 0.4f;
    float *dv, *dr, r = 0;
    cudaMalloc(&dv, n * sizeof(float));
    cudaMalloc(&dr, sizeof(float));
    cudaMemcpy(dv, h, n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(dr, 0, sizeof(float));
    sum_squares<<<8, 128, 128 * sizeof(float)>>>(dv, dr, n);
    cudaMemcpy(&r, dr, sizeof(float), cudaMemcpyDeviceToHost);
    printf("|v|^2 = %.4f\n", r);
    return 0;
}
