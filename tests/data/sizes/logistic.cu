// The logistic map on every element; ends with 1 where the last of them is not right.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void logistic(float* x, int n, long steps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (long s = 0; s < steps; ++s) v = 3.7f * v * (1.0f - v);
  x[i] = v;
}

int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1024;
  long steps = argc > 2 ? atol(argv[2]) : 10;
  float *x, first = 0.25f, last;
  cudaMalloc(&x, n * sizeof(float));
  for (int i : {0, n - 1}) cudaMemcpy(x + i, &first, sizeof(float), cudaMemcpyHostToDevice);
  for (int repeat = 0; repeat < 3; ++repeat) logistic<<<(n + 255) / 256, 256>>>(x, n, steps);
  cudaMemcpy(&last, x + n - 1, sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(&first, x, sizeof(float), cudaMemcpyDeviceToHost);
  printf("%.6f\n", last);
  return last == first ? 0 : 1;
}
