// Two fields, each relaxed in a stream of its own; Thrust makes and sums them, cuBLAS (where it is
// installed) takes their norms: ./app [ROWS COLUMNS]
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/tabulate.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "relax.cuh"
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif

struct Start {
    int of;
    __device__ float operator()(int i) const { return (float)((i * 7919 + of) % 1000) / 1000.0f; }
};

static float norm(const float* values, int count, cudaStream_t stream) {
    float found = 0.0f;
#ifdef WITH_CUBLAS
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetStream(handle, stream);
    cublasSnrm2(handle, count, values, 1, &found);
    cublasDestroy(handle);
#else
    (void)values, (void)count;
    cudaStreamSynchronize(stream);
#endif
    return found;
}

int main(int argc, char** argv) {
    int rows = argc > 1 ? std::atoi(argv[1]) : 64, columns = argc > 2 ? std::atoi(argv[2]) : 48;
    int count = rows * columns;
    cudaStream_t streams[2];
    thrust::device_vector<float> now[2], next[2];
    for (int k = 0; k < 2; ++k) {
        cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking);
        now[k].resize(count), next[k].resize(count);
        thrust::tabulate(thrust::cuda::par.on(streams[k]), now[k].begin(), now[k].end(), Start{k});
    }
    for (int sweep = 0; sweep < 20; ++sweep)
        for (int k = 0; k < 2; ++k) {
            relax(now[k].data().get(), next[k].data().get(), rows, columns, 0.5f, streams[k]);
            now[k].swap(next[k]);
        }
    for (int k = 0; k < 2; ++k) {
        float sum = thrust::reduce(thrust::cuda::par.on(streams[k]), now[k].begin(), now[k].end());
        std::printf("field %d: sum %.5e, norm %.5e\n", k, sum, norm(now[k].data().get(), count, streams[k]));
    }
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
