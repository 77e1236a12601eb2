// unnamed dim3{} temporaries with ternary expressions as launch configuration
#include <algorithm>
#include <cstdio>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

int main(int argc, char **argv)
{
    const int rows = 64, cols = 512;
    const bool wide = argc > 1 && argv[1][0] == 'w';

    std::vector<float> host(rows * cols);
    for (int i = 0; i < rows * cols; ++i)
        host[i] = static_cast<float>((i % cols) % 5) - 2.0f;

    float *a{}, *s{};
    cudaMalloc(&a, host.size() * sizeof(float));
    cudaMalloc(&s, rows * sizeof(float));
    cudaMemcpy(a, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);

    for (int n : {7, 33, 64}) {
        cudaMemset(s, 0, rows * sizeof(float));
        rowsum<<<dim3{n > 32 ? static_cast<unsigned>((n + 31) / 32) : 1u, 1, 1}, dim3{wide ? 128u : 32u}>>>(a, s, n, cols);

        std::vector<float> out(rows);
        cudaMemcpy(out.data(), s, rows * sizeof(float), cudaMemcpyDeviceToHost);
        auto touched = std::count_if(out.begin(), out.end(), [](float v) { return v != 0.0f; });
        std::printf("n=%2d touched=%d s[0]=%.1f s[%d]=%.1f\n", n, (int)touched, out[0], n - 1, out[n - 1]);
    }

    cudaFree(a);
    cudaFree(s);
    return 0;
}
