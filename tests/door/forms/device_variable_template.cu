// not yet on cuda: a function of the device is another address in each module
// A __device__ variable that is a template, read by cudaMemcpyFromSymbol.
#include <cstdio>
template <typename T> using op_t = T (*)(T, T);
template <typename T> __device__ T plus_of(T a, T b) { return a + b; }
template <typename T> __device__ op_t<T> chosen = plus_of<T>;
template <typename T> __global__ void apply(op_t<T> op, T *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = op(v[i], T(i));
}
int main() {
    const int n = 4096;
    float *d, h = 0;
    cudaMalloc(&d, n * sizeof(float));
    cudaMemset(d, 0, n * sizeof(float));
    op_t<float> op;
    cudaMemcpyFromSymbol(&op, chosen<float>, sizeof op);
    apply<float><<<n / 256, 256>>>(op, d, n);
    cudaMemcpy(&h, d + n - 1, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\n", h);
}
