// Written for cudaops: a 1-D stencil with its weights in constant memory.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define RADIUS 4
__constant__ float weights[2 * RADIUS + 1];
__device__ int touched;

__global__ void blur(const float* in, float* out, int n) {
    static __shared__ float tile[256 + 2 * RADIUS];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int t = threadIdx.x + RADIUS;
    tile[t] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < RADIUS) {
        tile[t - RADIUS] = i >= RADIUS && i - RADIUS < n ? in[i - RADIUS] : 0.0f;
        tile[t + blockDim.x] = i + (int)blockDim.x < n ? in[i + blockDim.x] : 0.0f;
    }
    __syncthreads();
    if (i < n) {
        float sum = 0.0f;
        #pragma unroll 3
        for (int k = -RADIUS; k <= RADIUS; ++k) sum += weights[k + RADIUS] * tile[t + k];
        out[i] = sum;
        if (i == 0) touched = n;
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 5000;
    float w[2 * RADIUS + 1];
    for (int i = 0; i <= 2 * RADIUS; i++) w[i] = 1.0f / (1 + abs(i - RADIUS));
    cudaMemcpyToSymbol(weights, w, sizeof(w));
    std::vector<float> h(n), r(n);
    for (int i = 0; i < n; i++) h[i] = (i * 13 % 101) / 101.0f;
    float *a, *b;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, n * sizeof(float));
    cudaMemcpy(a, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    for (int step = 0; step < 2; step++) blur<<<(n + 255) / 256, 256>>>(step ? b : a, step ? a : b, n);
    cudaMemcpy(r.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost);
    int seen = 0;
    cudaMemcpyFromSymbol(&seen, touched, sizeof(int));
    double s = 0;
    for (float v : r) s += v;
    printf("checksum %.6e\ncorners %.6f %.6f\ntouched %d\n", s, r[0], r[n - 1], seen);
    return 0;
}
