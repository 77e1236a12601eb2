// launch configuration chosen by #if / #ifdef branches in the middle of a call
#include <stdio.h>
#include <stdlib.h>

#ifndef TPB
#define TPB 32
#endif

//#define USE_STREAM
#define VERIFY 1

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

int main(int argc, char *argv[])
{
    const int rows = 64, cols = 512;
    float *a, *s;
    cudaMallocManaged(&a, rows * cols * sizeof(float));
    cudaMallocManaged(&s, rows * sizeof(float));
    for (int i = 0; i < rows * cols; i++)
        a[i] = (float)(i & 7);

#ifdef USE_STREAM
    cudaStream_t q;
    cudaStreamCreate(&q);
#endif

    rowsum<<<(rows + TPB - 1) / TPB,
#if TPB > 1024
             1024
#else
             TPB
#endif
#ifdef USE_STREAM
             , 0, q
#endif
             >>>(a, s, rows, cols);

#if defined(__CUDACC__) && !defined(NO_SYNC)
    cudaDeviceSynchronize();
#endif

#if VERIFY
    int bad = 0;
    for (int r = 0; r < rows; r++) {
        float want = 0;
        for (int c = 0; c < cols; c++)
            want += a[r * cols + c];
        bad += want != s[r];
    }
    printf("bad rows: %d\n", bad);
#endif
    printf("s[0] = %.1f\n", s[0]);
#ifdef USE_STREAM
    cudaStreamDestroy(q);
#endif
    cudaFree(a);
    cudaFree(s);
    return 0;
}
