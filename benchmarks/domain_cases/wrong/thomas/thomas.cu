// Batched tridiagonal systems by the Thomas algorithm, interleaved: element k of system s stands at k * batch + s.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define AT(k) ((k) * batch + s)

__global__ void thomas(const float *lower, const float *diag, const float *upper, float *d, float *work, int m, int batch, float tiny)
{
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= batch) return;
    float pivot = diag[AT(0)];
    if (fabsf(pivot) < tiny) pivot = copysignf(tiny, pivot);
    work[AT(0)] = upper[AT(0)] / pivot;
    d[AT(0)] /= pivot;
    for (int k = 1; k < m; ++k) {
        pivot = diag[AT(k)] - lower[AT(k)] * work[AT(k - 1)];
        if (fabsf(pivot) < tiny) pivot = copysignf(tiny, pivot);
        work[AT(k)] = upper[AT(k)] / pivot;
        d[AT(k)] = (d[AT(k)] - lower[AT(k)] * d[AT(k - 1)]) / pivot;
    }
    for (int k = m - 2; k >= 0; --k) d[AT(k)] -= work[AT(k)] * d[AT(k + 1)];
}

int main()
{
    const int m = 24, batch = 2048, n = m * batch;
    std::vector<float> l(n), c(n), u(n), d(n);
    for (int k = 0; k < m; ++k)
        for (int s = 0; s < batch; ++s) {
            l[AT(k)] = u[AT(k)] = -1.f;                 // implicit diffusion with one coefficient
            c[AT(k)] = 2.f + 0.01f * (s % 50 + 1);
            d[AT(k)] = ((k * 31 + s * 7) % 100) * 0.01f;
        }
    float *dl, *dc, *du, *dd, *dw;
    for (float **p : {&dl, &dc, &du, &dd, &dw}) cudaMalloc(p, n * sizeof(float));
    cudaMemcpy(dl, l.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dc, c.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(du, u.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dd, d.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(dw, 0, n * sizeof(float));
    thomas<<<batch / 64, 64>>>(dl, dc, du, dd, dw, m, batch, 1e-6f);
    cudaMemcpy(d.data(), dd, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0, sq = 0;
    for (float v : d) { sum += v; sq += v * v; }
    printf("%.5f %.5f\n", sum, sq);
}
