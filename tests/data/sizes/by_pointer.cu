// Written for cudaops: the kernel with most time is launched through a pointer.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void heavy(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float s = 0; for (int k = 0; k < 8000; ++k) s += a[(i + k) % n]; b[i] = s; }
}
__global__ void light(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float s = 0; for (int k = 0; k < 2; ++k) s += a[(i + k) % n]; b[i] = s; }
}
int main() {
  const int n = 1 << 15; float *h = new float[n], *a, *b;
  for (int i = 0; i < n; ++i) h[i] = i % 7;
  cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4);
  cudaMemcpy(a, h, n * 4, cudaMemcpyHostToDevice);
  void (*todo)(const float*, float*, int) = heavy;
  todo<<<n / 256, 256>>>(a, b, n);
  light<<<n / 256, 256>>>(a, b, n);
  cudaMemcpy(h, b, n * 4, cudaMemcpyDeviceToHost);
  printf("%f\n", h[5]);
}
