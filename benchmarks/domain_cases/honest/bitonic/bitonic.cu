// Bitonic sort of integers: the host launches every compare-and-exchange step, in place.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void bitonic_step(int *values, int j, int k)
{
  unsigned int i = threadIdx.x + blockDim.x * blockIdx.x;
  unsigned int other = i ^ j;
  if (other > i) {
    bool up = (i & k) == 0;
    if ((values[i] > values[other]) == up && values[i] != values[other]) {
      int t = values[i];
      values[i] = values[other];
      values[other] = t;
    }
  }
}

int main()
{
  const int n = 1024;
  int h[n];
  for (int i = 0; i < n; i++) h[i] = (i * 7919) % 2003 - 1000;
  int *d;
  cudaMalloc(&d, n * sizeof(int));
  cudaMemcpy(d, h, n * sizeof(int), cudaMemcpyHostToDevice);
  for (int k = 2; k <= n; k <<= 1)
    for (int j = k >> 1; j > 0; j >>= 1)
      bitonic_step<<<n / 128, 128>>>(d, j, k);
  cudaMemcpy(h, d, n * sizeof(int), cudaMemcpyDeviceToHost);
  long s = 0; int bad = 0;
  for (int i = 0; i < n; i++) { s += (long)i * h[i]; if (i && h[i - 1] > h[i]) bad++; }
  printf("checksum %ld, %d out of order\n", s, bad);
  return 0;
}
