// move-only RAII device buffer that converts to a raw pointer at the launch
#include <cstdio>
#include <utility>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

template <class T>
class DeviceBuffer {
    T *ptr_ = nullptr;
    size_t n_ = 0;

public:
    explicit DeviceBuffer(size_t n) : n_(n) { cudaMalloc(&ptr_, n * sizeof(T)); }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;
    DeviceBuffer(DeviceBuffer &&o) noexcept
        : ptr_(std::exchange(o.ptr_, nullptr)), n_(std::exchange(o.n_, 0)) {}
    DeviceBuffer &operator=(DeviceBuffer &&o) noexcept
    {
        std::swap(ptr_, o.ptr_);
        std::swap(n_, o.n_);
        return *this;
    }
    ~DeviceBuffer() { if (ptr_) cudaFree(ptr_); }
    operator T *() { return ptr_; }
    operator const T *() const { return ptr_; }
    void put(const std::vector<T> &v) { cudaMemcpy(ptr_, v.data(), n_ * sizeof(T), cudaMemcpyHostToDevice); }
    std::vector<T> get() const
    {
        std::vector<T> v(n_);
        cudaMemcpy(v.data(), ptr_, n_ * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

DeviceBuffer<float> reduceRows(DeviceBuffer<float> in, int rows, int cols)
{
    DeviceBuffer<float> out(rows);
    rowsum<<<(rows + 31) / 32, 32>>>(in, out, rows, cols);
    return out; // moved, "in" is released here
}

int main()
{
    const int rows = 64, cols = 512;
    std::vector<float> h(rows * cols);
    for (int i = 0; i < rows * cols; i++)
        h[i] = i % 4 == 3 ? 4.0f : 0.25f;

    DeviceBuffer<float> a(h.size());
    a.put(h);
    DeviceBuffer<float> b = std::move(a);
    auto sums = reduceRows(std::move(b), rows, cols).get();
    printf("size %zu, sums[0] %.2f, sums[63] %.2f\n", sums.size(), sums[0], sums[63]);
    return 0;
}
