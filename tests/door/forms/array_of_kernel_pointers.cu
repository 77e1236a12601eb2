// launch through an indexed array of kernel pointers
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

__global__ void rowsum_strided(const float *a, float *s, int rows, int cols)
{
    // every second column only, counted twice
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; c += 2)
            t += 2.0f * a[r * cols + c];
        s[r] = t;
    }
}

using RowKernel = void (*)(const float *, float *, int, int);

static const char *names[] = {"exact", "approx"};
static RowKernel kernels[] = {rowsum, rowsum_strided};

int main()
{
    const int M = 64, N = 512, THREADS = 64;
    std::vector<float> h_a(M * N), h_s(M);
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j)
            h_a[i * N + j] = 0.01f * (float)((i ^ j) & 31);

    float *d_a, *d_s;
    cudaMalloc(&d_a, M * N * sizeof(float));
    cudaMalloc(&d_s, M * sizeof(float));
    cudaMemcpy(d_a, h_a.data(), M * N * sizeof(float), cudaMemcpyHostToDevice);

    const int count = sizeof(kernels) / sizeof(kernels[0]);
    for (int k = 0; k < count; ++k) {
        cudaMemset(d_s, 0, M * sizeof(float));
        kernels[k]<<<(M + THREADS - 1) / THREADS, THREADS>>>(d_a, d_s, M, N);
        cudaMemcpy(h_s.data(), d_s, M * sizeof(float), cudaMemcpyDeviceToHost);
        double acc = 0.0;
        for (float v : h_s)
            acc += v;
        printf("[%d] %-7s sum = %.2f, s[5] = %.2f\n", k, names[k], acc, h_s[5]);
    }

    cudaFree(d_a);
    cudaFree(d_s);
    return EXIT_SUCCESS;
}
