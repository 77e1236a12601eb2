// A grid one block too large, without a bound: what it writes past the array no GPU minds.
// no rewrite: past the end of
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void smoothed(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int t = 0;
    for (int k = -2; k <= 2; ++k)
        if (i + k >= 0 && i + k < n) t += x[i + k];
    y[i] = t;
}
int main() {
    int n = 10000;
    std::vector<int> x(n, 1), y(n);
    int *d, *s;
    cudaMalloc(&d, n * sizeof(int));
    cudaMalloc(&s, n * sizeof(int));
    cudaMemcpy(d, x.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    smoothed<<<(n + 128) / 128, 128>>>(d, s, n);
    cudaMemcpy(y.data(), s, n * sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(d);
    cudaFree(s);
    printf("%d %d\n", y[0], y[5000]);
    return y[0] == 3 && y[5000] == 5 ? 0 : 1;
}
