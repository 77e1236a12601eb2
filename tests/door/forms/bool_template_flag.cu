// kernel with bool template flags, selected at run time by nested ifs
#include <iostream>
#include <vector>
using std::cout;
using std::vector;

// y = A x, optionally transposed, optionally accumulating into y
template <bool Transposed, bool Accumulate>
__global__ void gemv(const double *A, const double *x, double *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double sum = 0.0;
    for (int k = 0; k < n; k++) {
        if (Transposed)
            sum += A[k * n + i] * x[k];
        else
            sum += A[i * n + k] * x[k];
    }
    if constexpr (Accumulate)
        y[i] += sum;
    else
        y[i] = sum;
}

void launch_gemv(bool trans, bool acc, const double *A, const double *x, double *y, int n)
{
    dim3 b(64), g((n + 63) / 64);
    if (trans) {
        if (acc) gemv<true, true><<<g, b>>>(A, x, y, n);
        else gemv<true, false><<<g, b>>>(A, x, y, n);
    } else {
        if (acc) gemv<false, true><<<g, b>>>(A, x, y, n);
        else gemv<false, false><<<g, b>>>(A, x, y, n);
    }
}

int main()
{
    const int n = 150;
    vector<double> A(n * n), x(n), y(n);
    for (int i = 0; i < n; i++) {
        x[i] = i % 3;
        for (int j = 0; j < n; j++)
            A[i * n + j] = (i - j) * 0.25;
    }
    double *dA, *dx, *dy;
    cudaMalloc(&dA, sizeof(double) * n * n);
    cudaMalloc(&dx, sizeof(double) * n);
    cudaMalloc(&dy, sizeof(double) * n);
    cudaMemcpy(dA, A.data(), sizeof(double) * n * n, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x.data(), sizeof(double) * n, cudaMemcpyHostToDevice);

    launch_gemv(false, false, dA, dx, dy, n);
    launch_gemv(true, true, dA, dx, dy, n); // A is antisymmetric: must cancel to zero
    launch_gemv(true, true, dA, dx, dy, n);
    cudaMemcpy(y.data(), dy, sizeof(double) * n, cudaMemcpyDeviceToHost);
    cout << "y[0]=" << y[0] << " y[75]=" << y[75] << " y[149]=" << y[149] << "\n";
    cudaFree(dA);
    cudaFree(dx);
    cudaFree(dy);
    return 0;
}
