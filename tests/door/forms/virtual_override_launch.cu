// launch in an override of a virtual method, called through a base pointer
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

struct Backend {
    virtual ~Backend() = default;
    virtual std::string name() const = 0;
    virtual void sumRows(const float *a, float *s, int rows, int cols) = 0;
};

struct CpuBackend final : Backend {
    std::string name() const override { return "cpu"; }
    void sumRows(const float *a, float *s, int rows, int cols) override
    {
        for (int r = 0; r < rows; ++r) {
            float t = 0;
            for (int c = 0; c < cols; ++c)
                t += a[r * cols + c];
            s[r] = t;
        }
    }
};

struct CudaBackend final : Backend {
    std::string name() const override { return "cuda"; }
    void sumRows(const float *a, float *s, int rows, int cols) override
    {
        float *da, *ds;
        cudaMalloc(&da, sizeof(float) * rows * cols);
        cudaMalloc(&ds, sizeof(float) * rows);
        cudaMemcpy(da, a, sizeof(float) * rows * cols, cudaMemcpyHostToDevice);
        rowsum<<<(rows + 255) / 256, 256>>>(da, ds, rows, cols);
        cudaMemcpy(s, ds, sizeof(float) * rows, cudaMemcpyDeviceToHost);
        cudaFree(da);
        cudaFree(ds);
    }
};

int main()
{
    const int rows = 64, cols = 512;
    std::vector<float> a(rows * cols);
    for (int i = 0; i < rows * cols; ++i)
        a[i] = (i % 16) * 0.25f;

    std::vector<std::unique_ptr<Backend>> all;
    all.push_back(std::make_unique<CpuBackend>());
    all.push_back(std::make_unique<CudaBackend>());

    for (auto &b : all) {
        std::vector<float> s(rows, -1.f);
        b->sumRows(a.data(), s.data(), rows, cols);
        std::printf("%-5s s[0]=%.2f s[%d]=%.2f\n", b->name().c_str(), s[0], rows - 1, s[rows - 1]);
    }
    return 0;
}
