#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

// mean of each channel of an image batch in N, C, H, W
__global__ void channel_mean(const float *x, float *mean, int N, int C, int H, int W) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < C) {
        float acc = 0.f;
        for (int n = 0; n < N; ++n)
            for (int i = 0; i < H; ++i)
                for (int j = 0; j < W; ++j)
                    acc += x[((n * C + c) * H + i) * W + j];
        mean[c] = acc / (N * H * W);
    }
}

int main() {
    int N = 16, C = 256, H = 56, W = 56;
    std::vector<float> x((size_t)N * C * H * W);
    srand(3);
    for (auto &v : x) v = rand() / (float)RAND_MAX - 0.25f;
    float *dx, *dm;
    cudaMalloc(&dx, x.size() * sizeof(float));
    cudaMalloc(&dm, C * sizeof(float));
    cudaMemcpy(dx, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
    channel_mean<<<(C + 63) / 64, 64>>>(dx, dm, N, C, H, W);
    std::vector<float> m(C);
    cudaMemcpy(m.data(), dm, C * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0;
    for (float v : m) s += v;
    printf("%.4f\n", s);
}
