// Streams and events as a scheduler makes them: flags, priorities, what is being captured, events in a graph.
#include <cstdio>
#define OK(x) if (cudaError_t e = (x)) { printf("line %d: %s\n", __LINE__, cudaGetErrorName(e)); return 1; }
__device__ int hits;
__global__ void count_even(const int *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && v[i] % 2 == 0) atomicAdd(&hits, 1);
}
int main() {
    int least, greatest, priority, device, n = 5000, found = 0, zero = 0;
    unsigned flags, device_flags;
    unsigned long long id_a, id_b, capture = 0;
    OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    OK(cudaInitDevice(0, 0, 0));
    OK(cudaGetDeviceFlags(&device_flags));
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t a, b;
    OK(cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, greatest));
    OK(cudaStreamCreate(&b));
    OK(cudaStreamGetFlags(a, &flags));
    OK(cudaStreamGetPriority(a, &priority));
    OK(cudaStreamGetId(a, &id_a));
    OK(cudaStreamGetId(b, &id_b));
    OK(cudaStreamGetDevice(b, &device));
    printf("%d %d %d %d %d\n", flags == cudaStreamNonBlocking, priority == greatest, id_a != id_b, device,
           (device_flags & cudaDeviceScheduleMask) == cudaDeviceScheduleBlockingSync);
    cudaEvent_t begin, end, quiet;
    OK(cudaEventCreateWithFlags(&quiet, cudaEventDisableTiming));
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    int *v, *h = new int[n];
    for (int i = 0; i < n; ++i) h[i] = i * 3;
    OK(cudaMallocAsync(&v, n * sizeof(int), a));
    OK(cudaMemcpyAsync(v, h, n * sizeof(int), cudaMemcpyHostToDevice, a));
    OK(cudaEventRecord(quiet, a));
    OK(cudaStreamWaitEvent(b, quiet, 0));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    OK(cudaStreamBeginCapture(b, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecordWithFlags(begin, b, cudaEventRecordExternal));
    OK(cudaMemcpyToSymbolAsync(hits, &zero, sizeof zero, 0, cudaMemcpyHostToDevice, b));
    count_even<<<(n + 127) / 128, 128, 0, b>>>(v, n);
    OK(cudaMemcpyFromSymbolAsync(&found, hits, sizeof found, 0, cudaMemcpyDeviceToHost, b));
    OK(cudaEventRecordWithFlags(end, b, cudaEventRecordExternal));
    cudaStreamCaptureStatus status;
    OK(cudaStreamGetCaptureInfo(b, &status, &capture));
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(b, &graph));
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int k = 0; k < 3; ++k) OK(cudaGraphLaunch(exec, b));
    OK(cudaStreamSynchronize(b));
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, begin, end));
    printf("%d %d %d, mode %d\n", found, ms >= 0, status == cudaStreamCaptureStatusActive && capture > 0, mode);
    printf("%d\n", cudaEventElapsedTime(&ms, quiet, end) == cudaErrorInvalidResourceHandle);
    OK(cudaFreeAsync(v, a));
    OK(cudaStreamDestroy(a));
    delete[] h;
}
