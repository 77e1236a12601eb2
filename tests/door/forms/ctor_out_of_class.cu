// launch in a constructor that is defined outside its class
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

class RowProfile {
public:
    RowProfile(const float *host, int rows, int cols);
    ~RowProfile();
    float at(int r) const { return sums_[r]; }
    int argmax() const;

private:
    int rows_, cols_;
    float *sums_;
    float *d_matrix_ = NULL;
    float *d_sums_ = NULL;
};

RowProfile::RowProfile(const float *host, int rows, int cols)
    : rows_(rows), cols_(cols), sums_(new float[rows])
{
    const size_t n = (size_t)rows_ * cols_;
    cudaMalloc(&d_matrix_, n * sizeof(float));
    cudaMalloc(&d_sums_, rows_ * sizeof(float));
    cudaMemcpy(d_matrix_, host, n * sizeof(float), cudaMemcpyHostToDevice);
    dim3 block(16);
    dim3 grid((rows_ + block.x - 1) / block.x);
    rowsum<<<grid, block>>>(d_matrix_, d_sums_, rows_, cols_);
    cudaMemcpy(sums_, d_sums_, rows_ * sizeof(float), cudaMemcpyDeviceToHost);
}

RowProfile::~RowProfile()
{
    cudaFree(d_matrix_);
    cudaFree(d_sums_);
    delete[] sums_;
}

int RowProfile::argmax() const
{
    int best = 0;
    for (int r = 1; r < rows_; r++)
        if (sums_[r] > sums_[best]) best = r;
    return best;
}

int main(void)
{
    const int rows = 64, cols = 512;
    float *m = (float *)malloc(rows * cols * sizeof(float));
    for (int i = 0; i < rows * cols; i++)
        m[i] = (float)((i / cols * 37) % 64) / 64.0f;

    RowProfile p(m, rows, cols);
    int k = p.argmax();
    printf("brightest row %d with sum %.4f (row 0: %.4f)\n", k, p.at(k), p.at(0));
    free(m);
    return 0;
}
