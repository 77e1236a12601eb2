// Out-of-place matrix transposition, the simplest kernel there is.
#include <cstdio>
#include <memory>
#include <cuda_runtime.h>

template <typename T>
__global__ void naive_transpose(T* odata, const T* idata, int width, int height)
{
    int xIndex = blockIdx.x * blockDim.x + threadIdx.x;
    int yIndex = blockIdx.y * blockDim.y + threadIdx.y;
    if (xIndex < width && yIndex < height) {
        int index_in = xIndex + width * yIndex;
        int index_out = yIndex + height * xIndex;
        odata[index_out] = idata[index_in];
    }
}

int main()
{
    const int width = 132, height = 100;
    std::unique_ptr<float[]> h(new float[width * height]);
    for (int i = 0; i < width * height; ++i) h[i] = i * 0.5f;
    float *a, *b;
    cudaMalloc(&a, width * height * sizeof(float));
    cudaMalloc(&b, width * height * sizeof(float));
    cudaMemcpy(a, h.get(), width * height * sizeof(float), cudaMemcpyHostToDevice);
    naive_transpose<float><<<dim3((width + 15) / 16, (height + 15) / 16), dim3(16, 16)>>>(b, a, width, height);
    cudaMemcpy(h.get(), b, width * height * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (int i = 0; i < width * height; ++i) s += h[i] * (i % 31);
    printf("%.1f\n", s);
    return 0;
}
