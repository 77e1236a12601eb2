// Local arrays of the host that need more stack than Linux gives by default.
#include <cstdio>
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
const int ROWS = 64, COLS = 512, POINTS = 3000000;
int main() {
    float h[POINTS], g[ROWS];
    for (int i = 0; i < POINTS; ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, ROWS * COLS * sizeof(float));
    cudaMalloc(&s, sizeof g);
    cudaMemcpy(a, h + POINTS - ROWS * COLS, ROWS * COLS * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<(ROWS + 31) / 32, 32>>>(a, s, ROWS, COLS);
    cudaMemcpy(g, s, sizeof g, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    return 0;
}
