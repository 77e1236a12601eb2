// Scratch memory of every iteration from a pool: the device's own, kept between frees, and one of the program's.
#include <cstdio>
#include <cstdint>
#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { \
    printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); return 1; } } while (0)
__global__ void blur(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float left = i ? in[i - 1] : in[i], right = i + 1 < n ? in[i + 1] : in[i];
    out[i] = 0.25f * left + 0.5f * in[i] + 0.25f * right;
}
int main() {
    const int n = 1 << 14;
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    if (!supported) { printf("no pools\n"); return 1; }
    cudaMemPool_t pool, own;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    uint64_t keep = UINT64_MAX;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = cudaMemHandleTypeNone;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    CHECK(cudaMemPoolCreate(&own, &props));
    cudaMemAccessDesc access = {};
    access.location = props.location;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(own, &access, 1));
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    float *data, *host = new float[n];
    for (int i = 0; i < n; ++i) host[i] = float(i % 13);
    CHECK(cudaMallocAsync(&data, n * sizeof(float), own, s));
    CHECK(cudaMemcpyAsync(data, host, n * sizeof(float), cudaMemcpyHostToDevice, s));
    for (int k = 0; k < 3; ++k) {
        float *scratch;
        CHECK(cudaMallocFromPoolAsync(&scratch, n * sizeof(float), pool, s));
        blur<<<n / 256, 256, 0, s>>>(data, scratch, n);
        CHECK(cudaMemcpyAsync(data, scratch, n * sizeof(float), cudaMemcpyDeviceToDevice, s));
        CHECK(cudaFreeAsync(scratch, s));
    }
    CHECK(cudaMemcpyAsync(host, data, n * sizeof(float), cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    uint64_t used, high, reserved;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    printf("%.3f used %llu high %llu reserved %d\n", host[77], (unsigned long long)used, (unsigned long long)high, reserved > 0);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    printf("after trim %llu\n", (unsigned long long)reserved);
    CHECK(cudaFreeAsync(data, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemPoolDestroy(own));
    cudaStreamDestroy(s);
    delete[] host;
}
