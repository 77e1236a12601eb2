#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <cuda_runtime.h>

__global__ void fill(float* x, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) x[i] = (float)(i % 97) * 0.01f;
}

// Sum of each row, one thread a row.
__global__ void row_sums(const float* x, float* y, int rows, int columns) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float sum = 0;
  for (int c = 0; c < columns; ++c) sum += x[(long)r * columns + c];
  y[r] = sum;
}

int main(int argc, char** argv) {
  int rows = argc > 1 ? atoi(argv[1]) : 1024, columns = argc > 2 ? atoi(argv[2]) : 512, repeat = argc > 3 ? atoi(argv[3]) : 10;
  long n = (long)rows * columns;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, rows * sizeof(float));
  fill<<<(n + 255) / 256, 256>>>(x, n);
  for (int i = 0; i < 3; ++i) row_sums<<<1, 32>>>(x, y, 32, columns);  // warm up
  cudaDeviceSynchronize();
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) row_sums<<<(rows + 127) / 128, 128>>>(x, y, rows, columns);
  cudaDeviceSynchronize();
  auto end = std::chrono::steady_clock::now();
  std::vector<float> h(rows);
  cudaMemcpy(h.data(), y, rows * sizeof(float), cudaMemcpyDeviceToHost);
  double total = 0;
  for (float v : h) total += v;
  printf("total %.4f\n", total);
  fprintf(stderr, "average %.3f us\n", std::chrono::duration<double, std::micro>(end - start).count() / repeat);
  return 0;
}
