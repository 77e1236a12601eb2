// A library's entry that takes memory of any kind and asks where it lies.
#include <cstdio>
#include <cstdlib>
#include <vector>
__global__ void saxpy(int n, float a, const float *x, float *y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}
static bool on_device(const void *p) {
    cudaPointerAttributes at;
    if (cudaPointerGetAttributes(&at, p) != cudaSuccess) { cudaGetLastError(); return false; }
    static const char *names[] = {"unregistered", "host", "device", "managed"};
    printf("%s device %d same %d %d\n", names[at.type], at.type == cudaMemoryTypeUnregistered ? 0 : at.device,
           at.devicePointer == p, at.hostPointer == p);
    return at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged;
}
static const float *ready(const float *p, int n, std::vector<float *> &made) {
    if (on_device(p)) return p;
    float *copy;
    cudaMalloc(&copy, n * sizeof(float));
    cudaMemcpy(copy, p, n * sizeof(float), cudaMemcpyDefault);
    made.push_back(copy);
    return copy;
}
int main() {
    const int n = 10000;
    std::vector<float> plain(n, 1.0f);
    float *pinned, *managed, *device, *y;
    unsigned flags = 0;
    cudaHostAlloc(&pinned, n * sizeof(float), cudaHostAllocPortable);
    cudaHostGetFlags(&flags, pinned);
    printf("portable %d\n", (flags & cudaHostAllocPortable) != 0);
    cudaMallocManaged(&managed, n * sizeof(float));
    cudaMalloc(&device, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    cudaMemset(y, 0, n * sizeof(float));
    cudaMemset(device, 0, n * sizeof(float));
    for (int i = 0; i < n; ++i) pinned[i] = 2.0f, managed[i] = 3.0f;
    std::vector<float *> made;
    const float *all[] = {plain.data(), pinned, managed, device + 16};
    for (const float *x : all) saxpy<<<16, 128>>>(n - 16, 2.0f, ready(x, n - 16, made), y);
    float got;
    cudaMemcpy(&got, y + 9, sizeof got, cudaMemcpyDeviceToHost);
    printf("%g\n", got);
    for (float *p : made) cudaFree(p);
    cudaFree(y); cudaFree(device); cudaFree(managed); cudaFreeHost(pinned);
}
