// not yet: no cudaMemcpy3D on a processor
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

__global__ void rowsum(cudaPitchedPtr a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        const float *row = (const float *)((const char *)a.ptr + r * a.pitch);
        float t = 0;
        for (int c = 0; c < cols; ++c) t += row[c];
        s[r] = t;
    }
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    cudaPitchedPtr p;
    cudaExtent e = make_cudaExtent(cols * sizeof(float), rows, 1);
    cudaMalloc3D(&p, e);
    cudaMemcpy3DParms m = {};
    m.srcPtr = make_cudaPitchedPtr(h.data(), cols * sizeof(float), cols, rows);
    m.dstPtr = p;
    m.extent = e;
    m.kind = cudaMemcpyHostToDevice;
    cudaMemcpy3D(&m);
    rowsum<<<(rows + 31) / 32, 32>>>(p, s, rows, cols);
    cudaDeviceSynchronize();
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    cudaFree(a);
    cudaFree(s);
    return 0;
}
