// async copies from pinned memory, launch on a stream, host callback after it
#include <cstdio>
#include <cuda_runtime.h>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

struct Job {
    int id;
    int rows;
    const float *sums; // pinned
    double total;
};

static void CUDART_CB onDone(void *user)
{
    // no CUDA calls allowed in here
    Job *job = static_cast<Job *>(user);
    job->total = 0;
    for (int r = 0; r < job->rows; ++r)
        job->total += job->sums[r];
}

int main()
{
    const int NJOBS = 2, rows = 64, cols = 512;
    const size_t inBytes = rows * cols * sizeof(float), outBytes = rows * sizeof(float);
    cudaStream_t stream[NJOBS];
    float *h_a[NJOBS], *h_s[NJOBS], *d_a[NJOBS], *d_s[NJOBS];
    Job jobs[NJOBS];

    for (int j = 0; j < NJOBS; ++j) {
        cudaStreamCreateWithFlags(&stream[j], cudaStreamNonBlocking);
        cudaMallocHost(&h_a[j], inBytes);
        cudaHostAlloc(&h_s[j], outBytes, cudaHostAllocDefault);
        cudaMalloc(&d_a[j], inBytes);
        cudaMalloc(&d_s[j], outBytes);
        for (int i = 0; i < rows * cols; ++i)
            h_a[j][i] = float(i % (3 + j));
        jobs[j] = Job{j, rows, h_s[j], -1.0};
    }
    for (int j = 0; j < NJOBS; ++j) {
        cudaMemcpyAsync(d_a[j], h_a[j], inBytes, cudaMemcpyHostToDevice, stream[j]);
        rowsum<<<rows / 32, 32, 0, stream[j]>>>(d_a[j], d_s[j], rows, cols);
        cudaMemcpyAsync(h_s[j], d_s[j], outBytes, cudaMemcpyDeviceToHost, stream[j]);
        cudaLaunchHostFunc(stream[j], onDone, &jobs[j]);
    }
    for (int j = 0; j < NJOBS; ++j) {
        cudaStreamSynchronize(stream[j]);
        std::printf("job %d total %.1f\n", jobs[j].id, jobs[j].total);
        cudaFree(d_a[j]);
        cudaFree(d_s[j]);
        cudaFreeHost(h_a[j]);
        cudaFreeHost(h_s[j]);
        cudaStreamDestroy(stream[j]);
    }
    return 0;
}
