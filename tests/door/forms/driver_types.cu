// nvcc: -lcuda
// <cuda.h> beside the runtime: an error header for both, and what a program asks the driver of its device.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
inline void check(CUresult r, const char *what) {
    if (r == CUDA_SUCCESS) return;
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(r, &name);
    cuGetErrorString(r, &text);
    printf("%s: %s (%s)\n", what, name, text);
    exit(1);
}
inline void check(cudaError_t r, const char *what) {
    if (r != cudaSuccess) { printf("%s: %s\n", what, cudaGetErrorString(r)); exit(1); }
}
#define CHECK(x) check((x), #x)
struct Context { CUdevice device; CUcontext primary; CUstream stream; };
__global__ void shift(int *a, int n, int by) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += by; }
int main() {
    Context c = {};
    int count = 0, major = 0, minor = 0, sms = 0;
    size_t total = 0, left = 0, all = 0;
    char name[128];
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    CHECK(cuDeviceGet(&c.device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, c.device));
    CHECK(cuDeviceTotalMem(&total, c.device));
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, c.device));
    CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, c.device));
    CHECK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c.device));
    CHECK(cuDevicePrimaryCtxRetain(&c.primary, c.device));
    CHECK(cuCtxSetCurrent(c.primary));
    CHECK(cuMemGetInfo(&left, &all));
    CHECK(cudaStreamCreate(&c.stream));
    const int n = 8192;
    int *a, first;
    CHECK(cudaMalloc(&a, n * sizeof(int)));
    CUdeviceptr p = (CUdeviceptr)a;
    CHECK(cuMemsetD8(p, 0, n * sizeof(int)));
    for (int k = 1; k <= 3; ++k) shift<<<n / 128, 128, 0, c.stream>>>(a, n, k);
    CHECK(cuStreamSynchronize(c.stream));
    CHECK(cuMemcpyDtoH(&first, p + 4 * sizeof(int), sizeof first));
    const char *text;
    cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text);
    printf("%d %d %d %s\n", first, major >= 7 && sms > 0 && left <= all && total > 0, count > 0 && name[0], text);
    CHECK(cudaFree(a));
    CHECK(cuDevicePrimaryCtxRelease(c.device));
}
