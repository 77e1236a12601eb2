// Managed memory of several streams, each attached to its own, advised and asked where it is.
#include <cstdio>
__global__ void square(double *v, int n) {
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) v[i] = v[i] * v[i] + 1.0;
}
struct Task { int n; double *data; cudaStream_t stream; };
int main() {
    const int tasks = 3;
    Task task[tasks];
    int device = 0, managed = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&managed, cudaDevAttrConcurrentManagedAccess, device);
    for (int t = 0; t < tasks; ++t) {
        task[t].n = 4000 + 1000 * t;
        cudaStreamCreate(&task[t].stream);
        cudaMallocManaged(&task[t].data, task[t].n * sizeof(double), cudaMemAttachHost);
        if (cudaStreamAttachMemAsync(task[t].stream, task[t].data)) return 1;
        cudaStreamSynchronize(task[t].stream);
        for (int i = 0; i < task[t].n; ++i) task[t].data[i] = i % 10;
    }
    if (managed) {
        cudaMemLocation here = {cudaMemLocationTypeDevice, device};
        cudaMemAdvise(task[0].data, task[0].n * sizeof(double), cudaMemAdviseSetReadMostly, here);
        int read_mostly = 0;
        cudaMemRangeGetAttribute(&read_mostly, sizeof read_mostly, cudaMemRangeAttributeReadMostly, task[0].data,
                                 task[0].n * sizeof(double));
        printf("read mostly %d\n", read_mostly);
        cudaMemAdvise(task[0].data, task[0].n * sizeof(double), cudaMemAdviseUnsetReadMostly, here);
    }
    for (int t = 0; t < tasks; ++t) {
        square<<<8, 256, 0, task[t].stream>>>(task[t].data, task[t].n);
        cudaStreamAttachMemAsync(task[t].stream, task[t].data, 0, cudaMemAttachHost);
    }
    cudaDeviceSynchronize();
    for (int t = 0; t < tasks; ++t) {
        printf("%g ", task[t].data[3 + t]);
        cudaFree(task[t].data);
        cudaStreamDestroy(task[t].stream);
    }
    printf("\n%s\n", cudaGetErrorString(cudaGetLastError()));
}
