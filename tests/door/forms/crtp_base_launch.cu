// launch in a CRTP template base class, sizes come from the derived class
#include <cstdio>
#include <numeric>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

template <class Derived>
class GpuRowOp {
public:
    void apply(const std::vector<float> &in, std::vector<float> &out)
    {
        auto &self = static_cast<Derived &>(*this);
        const int rows = self.rows();
        const int cols = self.cols();
        float *a, *s;
        cudaMalloc(&a, in.size() * sizeof(float));
        cudaMalloc(&s, rows * sizeof(float));
        cudaMemcpy(a, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice);
        rowsum<<<self.blocks(), Derived::threads>>>(a, s, rows, cols);
        out.resize(rows);
        cudaMemcpy(out.data(), s, rows * sizeof(float), cudaMemcpyDeviceToHost);
        self.finish(out);
        cudaFree(s);
        cudaFree(a);
    }
};

class RowMean : public GpuRowOp<RowMean> {
    int r_, c_;

public:
    static constexpr int threads = 32;
    RowMean(int r, int c) : r_(r), c_(c) {}
    int rows() const { return r_; }
    int cols() const { return c_; }
    int blocks() const { return (r_ + threads - 1) / threads; }
    void finish(std::vector<float> &v) const
    {
        for (auto &x : v)
            x /= static_cast<float>(c_);
    }
};

int main()
{
    const int rows = 64, cols = 512;
    std::vector<float> data(rows * cols), mean;
    for (int i = 0; i < rows * cols; ++i)
        data[i] = static_cast<float>(i % cols) + static_cast<float>(i / cols);

    RowMean op(rows, cols);
    op.apply(data, mean);

    std::printf("mean[0]=%.2f mean[31]=%.2f mean[63]=%.2f\n", mean[0], mean[31], mean[63]);
    std::printf("sum of means=%.2f\n", std::accumulate(mean.begin(), mean.end(), 0.0));
    return 0;
}
