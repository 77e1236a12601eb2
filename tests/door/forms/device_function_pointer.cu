// not yet on cuda: a function of the device is another address in each module
// As device_variable_template, without a template: told apart from it.
#include <cstdio>
typedef float (*op_t)(float, float);
__device__ float plus_of(float a, float b) { return a + b; }
__device__ op_t chosen = plus_of;
__global__ void apply(op_t op, float *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = op(v[i], float(i));
}
int main() {
    const int n = 4096;
    float *d, h = 0;
    cudaMalloc(&d, n * sizeof(float));
    cudaMemset(d, 0, n * sizeof(float));
    op_t op;
    cudaMemcpyFromSymbol(&op, chosen, sizeof op);
    apply<<<n / 256, 256>>>(op, d, n);
    cudaMemcpy(&h, d + n - 1, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\n", h);
}
