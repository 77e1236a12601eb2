// Linear interpolation in a table with increasing nodes; outside of it constant, or along the end pieces.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <cuda_runtime.h>

template <typename Real>
__global__ void interpolate(const Real *nodes, const Real *values, int m, const Real *x, Real *y, int n, int extrapolate)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Real q = x[i];
    if (!extrapolate) {
        if (q <= nodes[0]) { y[i] = values[0]; return; }
        if (q >= nodes[m - 1]) { y[i] = values[m - 1]; return; }
    }
    int lo = 0, hi = m - 2;          // last piece that begins at or before q
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (nodes[mid] <= q) lo = mid;
        else hi = mid - 1;
    }
    Real t = (q - nodes[lo]) / (nodes[lo + 1] - nodes[lo]);
    y[i] = values[lo] + t * (values[lo + 1] - values[lo]);
}

int main()
{
    const int m = 65, n = 10000;
    double *nodes = (double *)malloc(m * sizeof(double)), *values = (double *)malloc(m * sizeof(double));
    double *x = (double *)malloc(n * sizeof(double)), *y = (double *)malloc(n * sizeof(double));
    for (int k = 0; k < m; ++k) { nodes[k] = k * 0.25; values[k] = std::sin(0.4 * k) + 0.01 * k; }
    for (int i = 0; i < n; ++i) x[i] = 16.0 * (i + 0.5) / n;
    double *dn, *dv, *dx, *dy;
    cudaMalloc(&dn, m * sizeof(double)); cudaMalloc(&dv, m * sizeof(double));
    cudaMalloc(&dx, n * sizeof(double)); cudaMalloc(&dy, n * sizeof(double));
    cudaMemcpy(dn, nodes, m * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(dv, values, m * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x, n * sizeof(double), cudaMemcpyHostToDevice);
    interpolate<double><<<(n + 127) / 128, 128>>>(dn, dv, m, dx, dy, n, 0);
    cudaMemcpy(y, dy, n * sizeof(double), cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (int i = 0; i < n; ++i) { s += y[i]; q += y[i] * y[i]; }
    printf("%.9f %.9f\n", s / n, q / n);
    return 0;
}
