// launches from std::thread workers, one stream and one slab of rows each
#include <cstdio>
#include <thread>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

static void worker(int id, const float *d_a, float *d_s, int row0, int nrows, int cols)
{
    cudaSetDevice(0);
    cudaStream_t st;
    cudaStreamCreate(&st);
    rowsum<<<1, nrows, 0, st>>>(d_a + (size_t)row0 * cols, d_s + row0, nrows, cols);
    cudaError_t e = cudaStreamSynchronize(st);
    if (e != cudaSuccess)
        std::fprintf(stderr, "worker %d: %s\n", id, cudaGetErrorString(e));
    cudaStreamDestroy(st);
}

int main()
{
    constexpr int nThreads = 4;
    constexpr int rows = 64;
    constexpr int cols = 512;
    constexpr int slab = rows / nThreads;

    std::vector<float> a(rows * cols);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c)
            a[r * cols + c] = float(r % 4) + (c < 8 ? 1.f : 0.f);

    float *d_a, *d_s;
    cudaMalloc(&d_a, a.size() * sizeof(float));
    cudaMalloc(&d_s, rows * sizeof(float));
    cudaMemcpy(d_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);

    std::vector<std::thread> pool;
    for (int t = 0; t < nThreads; ++t)
        pool.emplace_back(worker, t, d_a, d_s, t * slab, slab, cols);
    for (auto &th : pool)
        th.join();

    std::vector<float> s(rows);
    cudaMemcpy(s.data(), d_s, rows * sizeof(float), cudaMemcpyDeviceToHost);
    for (int t = 0; t < nThreads; ++t) {
        float part = 0;
        for (int r = 0; r < slab; ++r)
            part += s[t * slab + r];
        std::printf("slab %d: %.1f\n", t, part);
    }
    cudaFree(d_a);
    cudaFree(d_s);
    return 0;
}
