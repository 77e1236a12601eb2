// one launch per template argument through a fold expression over block sizes
#include <array>
#include <cstdio>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

struct Device {
    float *a, *s;
    int rows, cols;
};

template <int Block>
float try_block(const Device &d)
{
    static_assert(Block > 0 && Block <= 1024, "bad block size");
    cudaMemset(d.s, 0, d.rows * sizeof(float));
    rowsum<<<(d.rows + Block - 1) / Block, Block>>>(d.a, d.s, d.rows, d.cols);
    std::vector<float> out(d.rows);
    cudaMemcpy(out.data(), d.s, d.rows * sizeof(float), cudaMemcpyDeviceToHost);
    float t = 0;
    for (float v : out)
        t += v;
    std::printf("  block %4d -> %.1f\n", Block, t);
    return t;
}

template <int... Blocks>
auto sweep(const Device &d)
{
    std::array<float, sizeof...(Blocks)> r{};
    std::size_t i = 0;
    ((r[i++] = try_block<Blocks>(d)), ...);
    return r;
}

int main()
{
    Device d{nullptr, nullptr, 64, 512};
    std::vector<float> h(d.rows * d.cols);
    for (std::size_t i = 0; i < h.size(); ++i)
        h[i] = static_cast<float>(i % 9) * 0.5f;
    cudaMalloc(&d.a, h.size() * sizeof(float));
    cudaMalloc(&d.s, d.rows * sizeof(float));
    cudaMemcpy(d.a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);

    const auto results = sweep<8, 32, 64, 256>(d);
    bool same = true;
    for (float v : results)
        same = same && v == results.front();
    std::printf("%zu block sizes, %s\n", results.size(), same ? "all equal" : "MISMATCH");

    cudaFree(d.a);
    cudaFree(d.s);
    return 0;
}
