// device template that takes a reference to an array and deduces its length
#include <cstdio>
#include <cstdlib>

template <typename T, int N>
__device__ __forceinline__ void insertion_sort(T (&v)[N])
{
#pragma unroll
    for (int i = 1; i < N; ++i) {
        for (int j = i; j > 0 && v[j - 1] > v[j]; --j) {
            T tmp = v[j];
            v[j] = v[j - 1];
            v[j - 1] = tmp;
        }
    }
}

template <typename T, int N>
__device__ T median_of(const T (&v)[N]) { return v[N / 2]; }

__global__ void median3x3(const unsigned char *src, unsigned char *dst, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;

    unsigned char win[9];
    int k = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            win[k++] = src[(y + dy) * w + x + dx];
    insertion_sort(win);
    dst[y * w + x] = median_of(win);
}

int main()
{
    const int w = 64, h = 48;
    unsigned char *src, *dst;
    cudaMallocManaged(&src, w * h);
    cudaMallocManaged(&dst, w * h);
    for (int i = 0; i < w * h; ++i) {
        src[i] = (unsigned char)(i % w * 2);
        if (i % 17 == 0) src[i] = 255; // salt
        if (i % 23 == 0) src[i] = 0;   // pepper
        dst[i] = src[i];
    }

    dim3 tpb(16, 8);
    median3x3<<<dim3(w / 16, h / 8), tpb>>>(src, dst, w, h);
    cudaDeviceSynchronize();

    long before = 0, after = 0;
    for (int i = 0; i < w * h; ++i) {
        before += abs(src[i] - i % w * 2);
        after += abs(dst[i] - i % w * 2);
    }
    printf("error before %ld, after %ld\n", before, after);
    cudaFree(src);
    cudaFree(dst);
    return 0;
}
