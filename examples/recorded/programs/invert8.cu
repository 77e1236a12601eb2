// Inverses of many 8 x 8 matrices in double precision by Gauss-Jordan: one thread a matrix.
// invert8 [matrices [repeats]]
#include <cstdio>
#include <cstdlib>
#include <vector>

#define N 8

__device__ void eliminate(double work[N][2 * N], int pivot) {
    double factor = 1.0 / work[pivot][pivot];
    for (int c = 0; c < 2 * N; ++c) work[pivot][c] *= factor;
    for (int r = 0; r < N; ++r) {
        if (r == pivot) continue;
        double by = work[r][pivot];
        for (int c = 0; c < 2 * N; ++c) work[r][c] -= by * work[pivot][c];
    }
}

__global__ void invert8(const double* a, double* inverse, int matrices) {
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= matrices) return;
    double work[N][2 * N];
    for (int r = 0; r < N; ++r)
        for (int c = 0; c < N; ++c) {
            work[r][c] = a[(size_t)m * N * N + r * N + c];
            work[r][N + c] = r == c ? 1.0 : 0.0;
        }
    for (int p = 0; p < N; ++p) eliminate(work, p);
    for (int r = 0; r < N; ++r)
        for (int c = 0; c < N; ++c) inverse[(size_t)m * N * N + r * N + c] = work[r][N + c];
}

int main(int argc, char** argv) {
    int matrices = argc > 1 ? atoi(argv[1]) : 1000;
    int repeats = argc > 2 ? atoi(argv[2]) : 1;
    size_t n = (size_t)matrices * N * N;
    std::vector<double> a(n), inverse(n);
    unsigned state = 2463534242u;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        a[i] = (double)(state >> 8) / (1 << 24) - 0.5;
        if (i % (N * N) % (N + 1) == 0) a[i] += 6.0;
    }
    double *da, *di;
    cudaMalloc(&da, n * sizeof(double));
    cudaMalloc(&di, n * sizeof(double));
    cudaMemcpy(da, a.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    int block = 128, grid = (matrices + block - 1) / block;
    invert8<<<grid, block>>>(da, di, matrices);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r) invert8<<<grid, block>>>(da, di, matrices);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    cudaMemcpy(inverse.data(), di, n * sizeof(double), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (size_t i = 0; i < n; ++i) check += inverse[i] * (double)(i % 7 + 1);
    printf("checksum %.9f\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(da);
    cudaFree(di);
    return 0;
}
