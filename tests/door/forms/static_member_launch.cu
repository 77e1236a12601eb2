// launch in a static member function of a utility class
#include <iostream>
#include <vector>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

class RowReducer {
public:
    RowReducer() = delete;

    static std::vector<float> run(const std::vector<float>& m, int rows, int cols)
    {
        float *dIn, *dOut;
        cudaMalloc((void**)&dIn, bytes(m.size()));
        cudaMalloc((void**)&dOut, bytes(rows));
        cudaMemcpy(dIn, m.data(), bytes(m.size()), cudaMemcpyHostToDevice);
        launch(dIn, dOut, rows, cols);
        std::vector<float> out(rows);
        cudaMemcpy(out.data(), dOut, bytes(rows), cudaMemcpyDeviceToHost);
        cudaFree(dIn);
        cudaFree(dOut);
        return out;
    }

private:
    static const int kThreads = 64;

    static size_t bytes(size_t n) { return n * sizeof(float); }

    static void launch(const float* in, float* out, int rows, int cols)
    {
        rowsum<<<(rows + kThreads - 1) / kThreads, kThreads>>>(in, out, rows, cols);
    }
};

int main()
{
    const int rows = 64;
    const int cols = 500;
    std::vector<float> m(rows * cols);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            m[r * cols + c] = (r + 1) * 0.5f;

    std::vector<float> sums = RowReducer::run(m, rows, cols);

    int wrong = 0;
    for (int r = 0; r < rows; r++)
        if (sums[r] != (r + 1) * 0.5f * cols)
            ++wrong;
    std::cout << "row 10 sum: " << sums[10] << ", wrong rows: " << wrong << std::endl;
    return 0;
}
