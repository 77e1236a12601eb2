// args: 64 512
// What nvcc takes beyond g++: `return;` in main, a comment behind a line's last backslash; threads ended by PTX.
#include <cstdio>
#include <cstdlib>
#include <vector>
#ifdef __CUDA_ARCH__
#define give_up(text) printf(text); asm("exit")
#else
#define give_up(text) printf(text); exit(1)
#endif
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float t = 0;
        for (int c = 0; c < cols; ++c) t += a[r * cols + c];
        s[r] = t;
    }
}
__device__ void leave_unless(bool stays) {
    asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0; @p exit; }" ::"r"((unsigned)stays));
}
__global__ void scale(float *s, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    leave_unless(r < rows / 2);
    __syncthreads();
    s[r] *= 2;
}
int main(int argc, char **argv) {
    if (argc < 3) {
        auto hint = [] { printf("rows cols\n"); return; };
        hint();
        return;
    }
    int rows = atoi(argv[1]), cols = atoi(argv[2]);
    if (rows < 1) { give_up("no rows\n"); }
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    if (cudaSuccess != \ // of all rows
        cudaMalloc(&a, h.size() * sizeof(float))) {
        return;
    }
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<(rows + 31) / 32, 32>>>(a, s, rows, cols);
    scale<<<(rows + 31) / 32, 32>>>(s, rows);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    return 0;
}
