// Written for cudaops: what the recorder must see and leave alone under NVIDIA's runtime. Compiled by
// nvcc, run over runtime_double.cpp; `argv[1]` says which part.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/time.h>
#include <cuda_runtime.h>

__device__ float step;
__global__ void scale(float k, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = k * x[i] + step;
}
template <typename T>
__global__ void twice(T* x) { x[threadIdx.x] *= 2; }
__global__ void broken(int* x) { x[1 << 30] = 1; }

static const char* error() { return cudaGetErrorName(cudaGetLastError()); }

int main(int argc, char** argv) {
    const char* part = argc > 1 ? argv[1] : "plain";
    const int n = 100;
    float h[n], g = 0.5f, *x, *y;
    for (int i = 0; i < n; i++) h[i] = i;
    cudaMalloc(&x, sizeof h);
    cudaMallocManaged(&y, sizeof h);
    int* z;
    cudaMalloc(&z, 64 * sizeof(int));
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(step, &g, sizeof g);
    cudaStream_t s;
    cudaStreamCreate(&s);
    if (!strcmp(part, "plain")) {
        for (int i = 0; i < 3; i++) scale<<<1, 128, 0, s>>>(2.0f, x + 4, y, n - 4);
        twice<<<1, 64>>>(z);
        twice<int><<<1, 64>>>(z);
        scale<<<1, 2048>>>(2.0f, x, y, n);
        printf("%s\n", error());
        printf("%s\n", error());
        cudaFree(h);  // an error that stays while the next launches are recorded
        for (int i = 0; i < 2000; i++) scale<<<1, 96>>>(3.0f, x, y, n);
        printf("%s\n", error());
        for (int i = 0; i < 2000; i++) scale<<<1, 96>>>(3.0f, x, y, n);
        printf("%s\n", error());
        timeval now;
        gettimeofday(&now, NULL), gettimeofday(&now, nullptr);
    } else if (!strcmp(part, "graph")) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        twice<int><<<1, 64, 0, s>>>(z);
        for (int i = 0; i < 2000; i++) scale<<<1, 128>>>(2.0f, x, y, n);
        printf("%s\n", cudaGetErrorName(cudaStreamEndCapture(s, &graph)));
        scale<<<1, 128>>>(2.0f, x, y, n);
    } else if (!strcmp(part, "launched_graph")) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        for (int i = 0; i < 2; i++) twice<int><<<1, 64, 0, s>>>(z);
        cudaStreamEndCapture(s, &graph);
        cudaGraphInstantiate(&exec, graph, 0);
        cudaGraphDestroy(graph);
        for (int i = 0; i < 3; i++) printf("%s\n", cudaGetErrorName(cudaGraphLaunch(exec, s)));
        cudaGraphExecDestroy(exec);
    } else if (!strcmp(part, "clocks")) {
        cudaEvent_t start, stop;
        cudaEventCreate(&start), cudaEventCreate(&stop);
        for (int i = 0; i < 3; i++) scale<<<1, 96>>>(3.0f, x, y, n);
        auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < 5; i++) scale<<<1, 96>>>(3.0f, x, y, n);
        cudaDeviceSynchronize();
        auto ended = std::chrono::steady_clock::now();
        cudaEventRecord(start);
        for (int i = 0; i < 4; i++) twice<int><<<1, 64>>>(z);
        cudaEventRecord(stop);
        printf("%d\n", ended > begun);
    } else if (!strcmp(part, "broken")) {
        broken<<<1, 1>>>(z);
        scale<<<1, 128>>>(2.0f, x, y, n);
        printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    } else if (!strcmp(part, "reset")) {
        scale<<<1, 128>>>(2.0f, x, y, n);
        if (cudaDeviceReset() != cudaSuccess) return 1;
        cudaMalloc(&x, sizeof h);
        cudaMalloc(&y, sizeof h);
        scale<<<1, 128>>>(2.0f, x, y, n);
    }
    return 0;
}
