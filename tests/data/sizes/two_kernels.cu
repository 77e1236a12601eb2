// `folded` waits at barriers, which costs a processor's threads more than it costs a GPU; `turned`
// writes with a stride, which costs a GPU more. MORE: repetitions of a launch before the clock.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void folded(const float* in, float* out) {
    __shared__ float part[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = in[i];
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

__global__ void turned(const float* in, float* out, int rows) {
    int i = blockIdx.x * 256 + threadIdx.x;
    int to = i % 1024 * rows + i / 1024;
    out[to] = in[i] + in[to];
}

int main(int argc, char** argv) {
    int rows = atoi(argv[1]), n = rows * 1024, times = atoi(argv[2]);
    std::vector<float> h(n, 0.5f);
    float *in, *out;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemcpy(in, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    if (argc > 3)
        for (int k = 0; k < times; k++) turned<<<n / 256, 256>>>(in, out, rows);
    auto begin = std::chrono::steady_clock::now();
    folded<<<n / 256, 256>>>(in, out);
    if (argc < 4)
        for (int k = 0; k < times; k++) turned<<<n / 256, 256>>>(in, out, rows);
    cudaDeviceSynchronize();
    auto end = std::chrono::steady_clock::now();
    cudaMemcpy(h.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f in %d ns\n", h[1], (int)(end - begin).count());
}
