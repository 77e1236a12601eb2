// launch at the leaves of a recursive host function that halves the row range
#include <stdio.h>
#include <stdlib.h>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

static int leaves = 0;

/* divide and conquer on the host: small enough -> GPU, else split */
void solve(const float *d_a, float *d_s, int lo, int hi, int cols, int depth)
{
    int n = hi - lo;
    if (n <= 0)
        return;
    if (n <= 16 || depth > 10) {
        rowsum<<<1, 16>>>(d_a + lo * cols, d_s + lo, n, cols);
        leaves++;
        return;
    }
    int mid = lo + n / 2;
    solve(d_a, d_s, lo, mid, cols, depth + 1);
    solve(d_a, d_s, mid, hi, cols, depth + 1);
}

int main(int argc, char **argv)
{
    int rows = 64, cols = 512;
    if (argc > 1)
        cols = atoi(argv[1]);

    float *a = (float *)malloc(sizeof(float) * rows * cols);
    float *s = (float *)calloc(rows, sizeof(float));
    unsigned seed = 12345u;
    for (int i = 0; i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        a[i] = (float)(seed >> 28); /* 0..15 */
    }

    float *d_a, *d_s;
    cudaMalloc((void **)&d_a, sizeof(float) * rows * cols);
    cudaMalloc((void **)&d_s, sizeof(float) * rows);
    cudaMemcpy(d_a, a, sizeof(float) * rows * cols, cudaMemcpyHostToDevice);
    solve(d_a, d_s, 0, rows, cols, 0);
    cudaMemcpy(s, d_s, sizeof(float) * rows, cudaMemcpyDeviceToHost);

    double sum = 0;
    for (int r = 0; r < rows; r++)
        sum += s[r];
    printf("%d leaf launches, checksum %.0f\n", leaves, sum);

    cudaFree(d_a);
    cudaFree(d_s);
    free(a);
    free(s);
    return 0;
}
