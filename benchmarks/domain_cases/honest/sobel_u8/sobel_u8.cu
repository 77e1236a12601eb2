// 3x3 Sobel magnitude (|gx|+|gy|, saturated) on 8 bit images, borders clamped.
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

typedef unsigned char u8;

__device__ __forceinline__ int clampi(int v, int lo, int hi) { return v < lo ? lo : (v > hi ? hi : v); }

__global__ void sobel(const u8 *src, u8 *dst, int w, int h)
{
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h)
    return;
  int p[3][3];
  for (int j = -1; j <= 1; j++)
    for (int i = -1; i <= 1; i++)
      p[j + 1][i + 1] = src[clampi(y + j, 0, h - 1) * w + clampi(x + i, 0, w - 1)];
  int gx = (p[0][2] + 2 * p[1][2] + p[2][2]) - (p[0][0] + 2 * p[1][0] + p[2][0]);
  int gy = (p[2][0] + 2 * p[2][1] + p[2][2]) - (p[0][0] + 2 * p[0][1] + p[0][2]);
  int mag = abs(gx) + abs(gy);
  dst[y * w + x] = (u8)(mag > 255 ? 255 : mag);
}

int main()
{
  int w = 130, h = 75;
  u8 *img = (u8 *)malloc(w * h);
  for (int i = 0; i < w * h; i++)
    img[i] = (u8)((i % w) * (i / w) / 7 + (i * 37 % 11));
  u8 *a, *b;
  cudaMalloc(&a, w * h);
  cudaMalloc(&b, w * h);
  cudaMemcpy(a, img, w * h, cudaMemcpyHostToDevice);
  dim3 block(16, 16), grid((w + 15) / 16, (h + 15) / 16);
  sobel<<<grid, block>>>(a, b, w, h);
  cudaMemcpy(img, b, w * h, cudaMemcpyDeviceToHost);
  long sum = 0; unsigned hash = 0;
  for (int i = 0; i < w * h; i++) { sum += img[i]; hash = hash * 31 + img[i]; }
  printf("%ld %u\n", sum, hash);
  return 0;
}
