// launch in a friend function that reaches into a private device pointer
#include <iostream>
#include <iomanip>
#include <cstring>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

class Matrix {
    int nrow, ncol;
    float *dev;

public:
    Matrix(int r, int c, float (*f)(int, int)) : nrow(r), ncol(c)
    {
        float *tmp = new float[r * c];
        for (int i = 0; i < r; i++)
            for (int j = 0; j < c; j++)
                tmp[i * c + j] = f(i, j);
        cudaMalloc(&dev, sizeof(float) * r * c);
        cudaMemcpy(dev, tmp, sizeof(float) * r * c, cudaMemcpyHostToDevice);
        delete[] tmp;
    }
    Matrix(const Matrix &) = delete;
    ~Matrix() { cudaFree(dev); }

    friend void sum_rows(const Matrix &m, float *host_out);
};

void sum_rows(const Matrix &m, float *host_out)
{
    float *d_out;
    cudaMalloc(&d_out, sizeof(float) * m.nrow);
    int tpb = 64;
    int nb = (m.nrow + tpb - 1) / tpb;
    rowsum<<<nb, tpb>>>(m.dev, d_out, m.nrow, m.ncol);
    cudaMemcpy(host_out, d_out, sizeof(float) * m.nrow, cudaMemcpyDeviceToHost);
    cudaFree(d_out);
}

static float checker(int i, int j) { return ((i + j) & 1) ? 1.0f : 3.0f; }

int main()
{
    using namespace std;
    float out[64];
    memset(out, 0, sizeof out);

    Matrix m(64, 513, checker);
    sum_rows(m, out);

    cout << fixed << setprecision(1);
    for (int i = 0; i < 64; i += 9)
        cout << "row " << setw(2) << i << " -> " << out[i] << '\n';
    return 0;
}
