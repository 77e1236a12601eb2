#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <cuda_runtime.h>

__global__ void cross_entropy(const float *logits, const int *labels, float *loss, int rows, int classes) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float *x = logits + row * classes;
    float biggest = -1e30f;
    for (int i = 0; i < classes; i++)
        if (x[i] > biggest) biggest = x[i];
    float sum = 0.0f;
    for (int i = 0; i < classes; i++) sum += expf(x[i] - biggest);
    loss[row] = logf(sum) + biggest - x[labels[row]];
}

int main() {
    int rows = 4096, classes = 2000;
    size_t n = (size_t)rows * classes;
    float *h = (float *)malloc(n * 4), *d, *dl, *out = (float *)malloc(rows * 4);
    int *lab = (int *)malloc(rows * 4), *dlab;
    srand(11);
    for (size_t i = 0; i < n; i++) h[i] = 8.f * rand() / RAND_MAX - 4.f;
    for (int i = 0; i < rows; i++) lab[i] = rand() % classes;
    cudaMalloc(&d, n * 4); cudaMalloc(&dl, rows * 4); cudaMalloc(&dlab, rows * 4);
    cudaMemcpy(d, h, n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dlab, lab, rows * 4, cudaMemcpyHostToDevice);
    cross_entropy<<<(rows + 255) / 256, 256>>>(d, dlab, dl, rows, classes);
    cudaMemcpy(out, dl, rows * 4, cudaMemcpyDeviceToHost);
    double s = 0;
    for (int i = 0; i < rows; i++) s += out[i];
    printf("loss %.5f\n", s / rows);
}
