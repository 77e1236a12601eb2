// function-try-block as the body of main, errors thrown from a checked call
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

class CudaError : public std::runtime_error {
public:
    CudaError(cudaError_t e, const char *file, int line) : std::runtime_error(format(e, file, line)) {}

private:
    static std::string format(cudaError_t e, const char *file, int line)
    {
        std::ostringstream os;
        os << file << "(" << line << "): " << cudaGetErrorName(e);
        return os.str();
    }
};

inline void check(cudaError_t e, const char *file, int line)
{
    if (e != cudaSuccess)
        throw CudaError(e, file, line);
}
#define CK(x) check((x), __FILE__, __LINE__)

int main()
try {
    constexpr int rows = 64, cols = 512;
    std::vector<float> a(rows * cols, 0.5f), s(rows);
    for (int r = 0; r < rows; ++r)
        a[r * cols + r] = float(r);

    float *da = nullptr, *ds = nullptr;
    CK(cudaMalloc(&da, a.size() * sizeof(float)));
    CK(cudaMalloc(&ds, s.size() * sizeof(float)));
    CK(cudaMemcpy(da, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
    rowsum<<<4, 16>>>(da, ds, rows, cols);
    CK(cudaGetLastError());
    CK(cudaDeviceSynchronize());
    CK(cudaMemcpy(s.data(), ds, s.size() * sizeof(float), cudaMemcpyDeviceToHost));

    double trace = 0;
    for (float v : s)
        trace += v - 0.5 * (cols - 1);
    std::cout << "trace = " << trace << "\n";
    CK(cudaFree(da));
    CK(cudaFree(ds));
    return 0;
} catch (const CudaError &e) {
    std::cerr << "CUDA error: " << e.what() << "\n";
    return 2;
} catch (const std::exception &e) {
    std::cerr << e.what() << "\n";
    return 1;
}
