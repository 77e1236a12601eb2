// unique_ptr with a custom deleter owns the device memory given to the launch
#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

struct CudaDeleter {
    void operator()(void *p) const noexcept { cudaFree(p); }
};

template <typename T>
using device_ptr = std::unique_ptr<T[], CudaDeleter>;

template <typename T>
device_ptr<T> make_device(std::size_t n)
{
    void *p = nullptr;
    if (cudaMalloc(&p, n * sizeof(T)) != cudaSuccess)
        throw std::bad_alloc();
    return device_ptr<T>(static_cast<T *>(p));
}

template <typename T>
device_ptr<T> upload(const std::vector<T> &v)
{
    auto d = make_device<T>(v.size());
    cudaMemcpy(d.get(), v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
    return d;
}

int main()
{
    const int rows = 64, cols = 520;
    std::vector<float> image(rows * cols);
    for (int y = 0; y < rows; ++y)
        for (int x = 0; x < cols; ++x)
            image[y * cols + x] = (x - 260) * (x - 260) + (y - 32) * (y - 32) < 900 ? 1.f : 0.f;

    auto d_image = upload(image);
    auto d_rows = make_device<float>(rows);

    rowsum<<<(rows + 63) / 64, 64>>>(d_image.get(), d_rows.get(), rows, cols);

    std::vector<float> chord(rows);
    cudaMemcpy(chord.data(), &d_rows[0], rows * sizeof(float), cudaMemcpyDeviceToHost);

    float area = 0;
    for (float c : chord)
        area += c;
    std::printf("disc area %.0f px, widest chord %.0f px\n", area, chord[32]);
    return 0;
}
