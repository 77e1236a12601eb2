// launch inside a capturing lambda kept in a std::function
#include <cstdio>
#include <functional>
#include <vector>
#include <cuda_runtime.h>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

// tiny "benchmark harness": knows nothing about CUDA, just calls a thing n times
static void repeat(int n, const std::function<void(int)> &body)
{
    for (int i = 0; i < n; ++i)
        body(i);
}

int main()
{
    const int rows = 64, cols = 512;
    std::vector<float> h(rows * cols);
    for (size_t i = 0; i < h.size(); ++i)
        h[i] = float((i * 7 + 3) % 11) * 0.125f;

    float *d_a = nullptr, *d_s = nullptr;
    cudaMalloc(&d_a, h.size() * sizeof(float));
    cudaMalloc(&d_s, rows * sizeof(float));
    cudaMemcpy(d_a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);

    int calls = 0;
    std::function<void(int)> step = [&, threads = 32](int iter) {
        const int blocks = (rows + threads - 1) / threads;
        rowsum<<<blocks, threads>>>(d_a, d_s, rows, cols);
        calls += iter >= 0 ? 1 : 0;
    };

    repeat(5, step);
    cudaDeviceSynchronize();

    std::vector<float> s(rows);
    cudaMemcpy(s.data(), d_s, rows * sizeof(float), cudaMemcpyDeviceToHost);
    double total = 0;
    for (float v : s)
        total += v;
    printf("calls=%d total=%.3f first=%.3f last=%.3f\n", calls, total, s[0], s[rows - 1]);

    cudaFree(d_a);
    cudaFree(d_s);
    return 0;
}
