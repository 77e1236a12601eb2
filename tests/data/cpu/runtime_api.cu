// Every call of the runtime API that the usage count names, with what it must give.
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <iostream>
#include <vector>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    cudaError_t error = (call);                                                                \
    if (error != cudaSuccess) {                                                                \
      std::cerr << cudaGetErrorName(error) << ": " << cudaGetErrorString(error) << " at line " \
                << __LINE__ << std::endl;                                                      \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)
#define EXPECT(condition)                                   \
  if (!(condition)) {                                       \
    fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    exit(2);                                                \
  }

__constant__ int table[8];
__device__ float result[4];
__managed__ int shared_counter;
static __device__ unsigned hidden = 5;

__global__ void __launch_bounds__(256, 2) add_one(int* data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1 + table[i & 7];
  if (i == 0) {
    result[2] = 1.5f;
    hidden += 1;
    shared_counter = n;
  }
}
__global__ void big_shared(float* out) {
  extern __shared__ float space[];
  space[threadIdx.x * 64] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = space[(threadIdx.x ^ 1) * 64];
}
static void after(void* data) { ++*static_cast<int*>(data); }

int main() {
  int count = 0, device = -1;
  CHECK(cudaGetDeviceCount(&count));
  EXPECT(count == 1);
  CHECK(cudaSetDevice(0));
  CHECK(cudaGetDevice(&device));
  EXPECT(device == 0);
  EXPECT(cudaSetDevice(3) == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  EXPECT(cudaPeekAtLastError() == cudaSuccess);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  EXPECT(properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
  int processors;
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  EXPECT(processors == properties.multiProcessorCount);
  size_t free_bytes, total_bytes;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  EXPECT(free_bytes <= total_bytes && free_bytes > 0);

  const int n = 777;
  std::vector<int> host(n, 10);
  int *data = nullptr, *pinned = nullptr, *managed = nullptr;
  CHECK(cudaMalloc(&data, n * sizeof(int)));
  EXPECT(((size_t)data & 255) == 0);
  CHECK(cudaMallocHost(&pinned, n * sizeof(int)));
  CHECK(cudaMallocManaged(&managed, n * sizeof(int)));
  int weights[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(cudaMemcpyToSymbol(table, weights, sizeof weights));
  cudaStream_t stream, other;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreateWithFlags(&stop, cudaEventDefault));
  CHECK(cudaMemcpyAsync(data, host.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
  CHECK(cudaEventRecord(start, stream));
  add_one<<<dim3((n + 255) / 256), dim3(256), 0, stream>>>(data, n);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(stop, stream));
  CHECK(cudaStreamWaitEvent(other, stop, 0));
  CHECK(cudaEventSynchronize(stop));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, start, stop));
  EXPECT(ms >= 0);
  CHECK(cudaMemcpy(pinned, data, n * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(pinned[9] == 12 && pinned[15] == 18);
  for (int i = 0; i < n; ++i) managed[i] = i;
  add_one<<<4, 256>>>(managed, n);
  CHECK(cudaDeviceSynchronize());
  EXPECT(managed[3] == 3 + 1 + 3);
  EXPECT(shared_counter == n);

  float back[4];
  CHECK(cudaMemcpyFromSymbol(back, result, sizeof back));
  EXPECT(back[2] == 1.5f);
  unsigned seen;
  CHECK(cudaMemcpyFromSymbol(&seen, hidden, sizeof seen));
  EXPECT(seen == 7);
  float* address;
  CHECK(cudaGetSymbolAddress((void**)&address, result));
  CHECK(cudaMemset(address, 0, sizeof back));
  CHECK(cudaMemcpyFromSymbol(back, result, sizeof back, 0, cudaMemcpyDeviceToHost));
  EXPECT(back[2] == 0.0f);

  float* out;
  CHECK(cudaMalloc((void**)&out, 256 * sizeof(float)));
  big_shared<<<1, 256, 65536>>>(out);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(big_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  big_shared<<<1, 256, 65536>>>(out);
  CHECK(cudaGetLastError());
  float first[2];
  CHECK(cudaMemcpy(first, out, sizeof first, cudaMemcpyDefault));
  EXPECT(first[0] == 1 && first[1] == 0);
  EXPECT(cudaFuncSetAttribute(big_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) != cudaSuccess);
  (void)cudaGetLastError();

  size_t pitch;
  char* rows;
  CHECK(cudaMallocPitch(&rows, &pitch, 100, 10));
  EXPECT(pitch >= 100 && pitch % 32 == 0);
  char image[10][100], copy[10][100];
  memset(image, 7, sizeof image);
  CHECK(cudaMemcpy2D(rows, pitch, image, 100, 100, 10, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2D(copy, 100, rows, pitch, 100, 10, cudaMemcpyDeviceToHost));
  EXPECT(memcmp(image, copy, sizeof image) == 0);

  int blocks;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_one, 256, 0));
  EXPECT(blocks == 6);
  int grid, block;
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, add_one, 0, 0));
  EXPECT(grid > 0 && block > 0);
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, add_one));
  CHECK(cudaFuncSetCacheConfig(add_one, cudaFuncCachePreferL1));
  int called = 0;
  CHECK(cudaLaunchHostFunc(stream, after, &called));
  EXPECT(called == 1);
  EXPECT(cudaMemcpy(data, host.data(), n * sizeof(int) + 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(host.data(), data, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  void* huge;
  EXPECT(cudaMalloc(&huge, (size_t)1 << 60) == cudaErrorMemoryAllocation);
  (void)cudaGetLastError();
  auto t0 = std::chrono::steady_clock::now();
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(std::chrono::steady_clock::now() >= t0);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  CHECK(cudaFree(data));
  CHECK(cudaFree(nullptr));
  EXPECT(cudaFree(data) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(managed));
  CHECK(cudaDeviceReset());
  puts("ok");
}
