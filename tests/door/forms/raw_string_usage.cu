// raw string literals that contain launch-like text around the real launch
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

static const char *kUsage = R"(usage: rowsum_demo [--help]
  sums the rows of a 64 x 512 matrix, the same as
      rowsum<<<grid, block>>>(a, s, rows, cols);
  "quotes", \backslashes\ and // slashes are fine in here
)";

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

static const std::string kNaiveSource = R"cuda(
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    for (int r = 0; r < rows; ++r) { s[r] = 0; /* ")" unbalanced { on purpose */
}
)cuda";

int main(int argc, char **argv)
{
    if (argc > 1 && !std::strcmp(argv[1], "--help")) {
        std::fputs(kUsage, stdout);
        return 0;
    }
    const int rows = 64, cols = 512;
    std::vector<float> a(rows * cols), s(rows);
    for (int i = 0; i < rows * cols; ++i)
        a[i] = kNaiveSource[i % kNaiveSource.size()] == '{' ? 1.0f : 0.0f;

    float *da, *ds;
    cudaMalloc(&da, a.size() * sizeof(float));
    cudaMalloc(&ds, s.size() * sizeof(float));
    cudaMemcpy(da, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<2, 32>>>(da, ds, rows, cols);
    cudaMemcpy(s.data(), ds, s.size() * sizeof(float), cudaMemcpyDeviceToHost);

    float braces = 0;
    for (float v : s)
        braces += v;
    std::printf(R"({"rows": %d, "cols": %d, "braces": %.0f})" "\n", rows, cols, braces);
    cudaFree(da);
    cudaFree(ds);
    return 0;
}
