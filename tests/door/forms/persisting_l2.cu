// A table that is to stay in the L2 cache while data streams past it: a window of a stream's accesses.
#include <algorithm>
#include <cstdio>
__global__ void lookup(const int *table, int table_size, const int *keys, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[keys[i] % table_size];
}
int main() {
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    const int n = 1 << 15, m = 4096;
    int *table, *keys, *out, *host = new int[n];
    cudaMalloc(&table, m * sizeof(int)); cudaMalloc(&keys, n * sizeof(int)); cudaMalloc(&out, n * sizeof(int));
    for (int i = 0; i < n; ++i) host[i] = (i * 2654435761u) >> 8;
    cudaMemcpy(keys, host, n * sizeof(int), cudaMemcpyHostToDevice);
    for (int i = 0; i < m; ++i) host[i] = i * 3;
    cudaMemcpy(table, host, m * sizeof(int), cudaMemcpyHostToDevice);
    size_t carve = std::min<size_t>(prop.l2CacheSize / 4, prop.persistingL2CacheMaxSize);
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, carve);
    cudaStream_t s;
    cudaStreamCreate(&s);
    cudaStreamAttrValue attr = {};
    attr.accessPolicyWindow.base_ptr = table;
    attr.accessPolicyWindow.num_bytes = std::min<size_t>(m * sizeof(int), prop.accessPolicyMaxWindowSize);
    attr.accessPolicyWindow.hitRatio = 0.6f;
    attr.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    attr.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    if (cudaStreamSetAttribute(s, cudaStreamAttributeAccessPolicyWindow, &attr)) return 1;
    for (int k = 0; k < 4; ++k) lookup<<<n / 256, 256, 0, s>>>(table, m, keys, out, n);
    cudaStreamAttrValue back = {};
    cudaStreamGetAttribute(s, cudaStreamAttributeAccessPolicyWindow, &back);
    printf("window %zu bytes, hits %d\n", back.accessPolicyWindow.num_bytes, back.accessPolicyWindow.hitProp);
    attr.accessPolicyWindow.num_bytes = 0;
    cudaStreamSetAttribute(s, cudaStreamAttributeAccessPolicyWindow, &attr);
    cudaCtxResetPersistingL2Cache();
    cudaMemcpy(host, out, n * sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d %d\n", host[1], host[n - 1]);
    if (cudaStreamSynchronize(s)) return 1;
    delete[] host;
}
