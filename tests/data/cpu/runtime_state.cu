// What the runtime keeps of memory, pools, streams, events, arrays and the device, and says when it is asked.
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
  do {                                                                           \
    cudaError_t error = (call);                                                  \
    if (error != cudaSuccess) {                                                  \
      fprintf(stderr, "%s at line %d\n", cudaGetErrorString(error), __LINE__);   \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)
#define EXPECT(condition)                                   \
  if (!(condition)) {                                       \
    fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    exit(2);                                                \
  }
#define REFUSED(call, error) EXPECT((call) == error && cudaGetLastError() == error)

__device__ int counter;
__global__ void named_kernel(int* p) { p[threadIdx.x] = threadIdx.x + counter; }

static unsigned long long ask(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  unsigned long long value = 0;
  CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

static void pools(cudaStream_t stream) {
  cudaMemPool_t standard, now, own;
  CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
  CHECK(cudaDeviceGetMemPool(&now, 0));
  EXPECT(now == standard);
  REFUSED(cudaDeviceGetMemPool(&now, 1), cudaErrorInvalidDevice);
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  props.maxSize = 1 << 20;
  CHECK(cudaMemPoolCreate(&own, &props));
  CHECK(cudaDeviceSetMemPool(0, own));
  char *a, *b, *c;
  CHECK(cudaMallocAsync(&a, 1000, stream));
  CHECK(cudaMallocAsync(&b, 5000, standard, stream));
  EXPECT(ask(own, cudaMemPoolAttrUsedMemCurrent) == 1000);
  EXPECT(ask(standard, cudaMemPoolAttrUsedMemCurrent) == 5000);
  REFUSED(cudaMallocFromPoolAsync(&c, 2 << 20, own, stream), cudaErrorMemoryAllocation);
  CHECK(cudaFree(a));
  CHECK(cudaFreeAsync(b, stream));
  EXPECT(ask(standard, cudaMemPoolAttrUsedMemCurrent) == 0 && ask(standard, cudaMemPoolAttrUsedMemHigh) == 5000);
  EXPECT(ask(standard, cudaMemPoolAttrReservedMemCurrent) > 0);  // until the host waits
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(ask(standard, cudaMemPoolAttrReservedMemCurrent) == 0);
  unsigned long long none = 0, some = 1;
  CHECK(cudaMemPoolSetAttribute(standard, cudaMemPoolAttrUsedMemHigh, &none));
  EXPECT(ask(standard, cudaMemPoolAttrUsedMemHigh) == 0);
  REFUSED(cudaMemPoolSetAttribute(standard, cudaMemPoolAttrUsedMemHigh, &some), cudaErrorInvalidValue);
  cudaMemAccessFlags flags;
  CHECK(cudaMemPoolGetAccess(&flags, own, &props.location));
  EXPECT(flags == cudaMemAccessFlagsProtReadWrite);
  CHECK(cudaMemPoolDestroy(own));
  REFUSED(cudaMemPoolDestroy(standard), cudaErrorInvalidValue);
  CHECK(cudaDeviceGetMemPool(&now, 0));
  EXPECT(now == standard);
}

static void memory() {
  int *device, *pinned, *managed, local = 0;
  CHECK(cudaMalloc(&device, 64));
  CHECK(cudaMallocHost(&pinned, 64));
  CHECK(cudaMallocManaged(&managed, 64));
  cudaPointerAttributes at;
  CHECK(cudaPointerGetAttributes(&at, device + 3));
  EXPECT(at.type == cudaMemoryTypeDevice && at.devicePointer == device + 3 && !at.hostPointer);
  CHECK(cudaPointerGetAttributes(&at, pinned));
  EXPECT(at.type == cudaMemoryTypeHost && at.hostPointer == pinned);
  CHECK(cudaPointerGetAttributes(&at, managed));
  EXPECT(at.type == cudaMemoryTypeManaged && at.device == 0);
  CHECK(cudaPointerGetAttributes(&at, &local));
  EXPECT(at.type == cudaMemoryTypeUnregistered);
  CHECK(cudaHostRegister(&local, sizeof local, cudaHostRegisterDefault));
  CHECK(cudaPointerGetAttributes(&at, &local));
  EXPECT(at.type == cudaMemoryTypeHost);
  CHECK(cudaHostUnregister(&local));
  unsigned flags;
  REFUSED(cudaHostGetFlags(&flags, &local), cudaErrorInvalidValue);
  void* symbol;
  CHECK(cudaGetSymbolAddress(&symbol, counter));
  CHECK(cudaPointerGetAttributes(&at, symbol));
  EXPECT(at.type == cudaMemoryTypeDevice);

  cudaMemLocation here = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
  CHECK(cudaMemAdvise(managed, 64, cudaMemAdviseSetPreferredLocation, host));
  CHECK(cudaMemAdvise(managed, 64, cudaMemAdviseSetAccessedBy, here));
  CHECK(cudaMemPrefetchAsync(managed, 64, here, 0, 0));
  int preferred, last, by[2];
  void* into[] = {&preferred, &last, by};
  size_t sizes[] = {4, 4, 8};
  cudaMemRangeAttribute which[] = {cudaMemRangeAttributePreferredLocation, cudaMemRangeAttributeLastPrefetchLocation,
                                   cudaMemRangeAttributeAccessedBy};
  CHECK(cudaMemRangeGetAttributes(into, sizes, which, 3, managed, 64));
  EXPECT(preferred == cudaCpuDeviceId && last == 0 && by[0] == 0 && by[1] == cudaInvalidDeviceId);
  CHECK(cudaStreamAttachMemAsync(0, managed, 0, cudaMemAttachGlobal));
  REFUSED(cudaStreamAttachMemAsync(0, device), cudaErrorInvalidValue);

  CHECK(cudaMemset(device, 0, 64));
  CHECK(cudaMemset2DAsync(device, 8, 1, 4, 8, 0));
  CHECK(cudaMemcpyPeer(managed, 0, device, 0, 64));
  EXPECT(managed[0] == 0x01010101 && managed[1] == 0 && managed[14] == 0x01010101);
  REFUSED(cudaMemcpyPeer(managed, 1, device, 0, 64), cudaErrorInvalidDevice);
  cudaMemcpy3DPeerParms peer = {};
  peer.srcPtr = make_cudaPitchedPtr(managed, 16, 16, 4);
  peer.dstPtr = make_cudaPitchedPtr(device, 16, 16, 4);
  peer.extent = make_cudaExtent(16, 4, 1);
  managed[5] = 77;
  CHECK(cudaMemcpy3DPeerAsync(&peer, 0));
  CHECK(cudaMemcpy(&local, device + 5, 4, cudaMemcpyDefault));
  EXPECT(local == 77);
  CHECK(cudaFree(device));
  CHECK(cudaFree(managed));
  CHECK(cudaFreeHost(pinned));
}

static void arrays() {
  cudaArray_t one, other;
  cudaChannelFormatDesc desc = cudaCreateChannelDesc<int>(), same;
  CHECK(cudaMallocArray(&one, &desc, 4, 3));
  CHECK(cudaMallocArray(&other, &desc, 4, 3));
  CHECK(cudaGetChannelDesc(&same, one));
  EXPECT(same.x == 32 && same.f == cudaChannelFormatKindSigned);
  int from[12], to[12] = {};
  for (int i = 0; i < 12; ++i) from[i] = i;
  CHECK(cudaMemcpy2DToArrayAsync(one, 0, 0, from, 16, 16, 3, cudaMemcpyHostToDevice, 0));
  CHECK(cudaMemcpy2DArrayToArray(other, 4, 1, one, 0, 0, 8, 2));
  CHECK(cudaMemcpy2DFromArrayAsync(to, 16, other, 0, 0, 16, 3, cudaMemcpyDeviceToHost, 0));
  EXPECT(to[5] == 0 && to[6] == 1 && to[9] == 4 && to[10] == 5);
  CHECK(cudaFreeArray(one));
  CHECK(cudaFreeArray(other));
}

static void streams() {
  cudaStream_t one, other;
  int least, greatest, priority;
  unsigned flags;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(cudaStreamCreateWithPriority(&one, cudaStreamNonBlocking, greatest - 100));
  CHECK(cudaStreamCreate(&other));
  CHECK(cudaStreamGetPriority(one, &priority));
  CHECK(cudaStreamGetFlags(one, &flags));
  EXPECT(priority == greatest && flags == cudaStreamNonBlocking);
  CHECK(cudaStreamGetFlags(0, &flags));
  EXPECT(flags == cudaStreamDefault);
  cudaStreamAttrValue value = {}, back = {};
  value.accessPolicyWindow.hitRatio = 0.5f;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  CHECK(cudaStreamSetAttribute(one, cudaStreamAttributeAccessPolicyWindow, &value));
  CHECK(cudaStreamCopyAttributes(other, one));
  CHECK(cudaStreamGetAttribute(other, cudaStreamAttributeAccessPolicyWindow, &back));
  EXPECT(back.accessPolicyWindow.hitRatio == 0.5f && back.accessPolicyWindow.hitProp == cudaAccessPropertyPersisting);
  cudaEvent_t timed, quiet;
  float ms;
  CHECK(cudaEventCreate(&timed, cudaEventBlockingSync));
  CHECK(cudaEventCreateWithFlags(&quiet, cudaEventDisableTiming));
  CHECK(cudaEventRecordWithFlags(timed, one, cudaEventRecordDefault));
  CHECK(cudaEventRecord(quiet, one));
  REFUSED(cudaEventElapsedTime(&ms, timed, quiet), cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(one));
  CHECK(cudaStreamDestroy(other));
}

static void device() {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  int value, found;
  char id[20];
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 0));
  EXPECT(value == 1 && prop.memoryPoolsSupported == 1);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxPersistingL2CacheSize, 0));
  EXPECT(value == prop.persistingL2CacheMaxSize && value < prop.l2CacheSize);
  for (int each = 1; each < cudaDevAttrMax; ++each) {
    if (cudaDeviceGetAttribute(&value, (cudaDeviceAttr)each, 0) == cudaSuccess) continue;
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  }
  REFUSED(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)9999, 0), cudaErrorInvalidValue);
  CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20));
  size_t limit;
  CHECK(cudaDeviceGetLimit(&limit, cudaLimitPersistingL2CacheSize));
  EXPECT(limit == 1 << 20);
  CHECK(cudaCtxResetPersistingL2Cache());
  CHECK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
  CHECK(cudaDeviceGetByPCIBusId(&found, id));
  EXPECT(found == 0);
  REFUSED(cudaDeviceGetByPCIBusId(&found, "1234:ab:0c.0"), cudaErrorInvalidDevice);
  REFUSED(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  REFUSED(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1), cudaErrorInvalidDevice);
  unsigned flags;
  CHECK(cudaSetDeviceFlags(cudaDeviceScheduleYield));
  CHECK(cudaGetDeviceFlags(&flags));
  EXPECT((flags & cudaDeviceScheduleMask) == cudaDeviceScheduleYield);
  const char* name;
  CHECK(cudaFuncGetName(&name, named_kernel));
  EXPECT(strstr(name, "named_kernel"));
  int blocks;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, named_kernel, 256, 0, cudaOccupancyDefault));
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&limit, named_kernel, blocks, 256));
  EXPECT(blocks > 0 && limit > 0);
  EXPECT(!strcmp(cudaGetErrorString(cudaErrorGraphExecUpdateFailure),
                 "the graph update was not performed because it included changes which violated constraints specific to "
                 "instantiated graph update"));
  EXPECT(!strcmp(cudaGetErrorName(cudaErrorIllegalState), "cudaErrorIllegalState"));
}

static void driver() {
  CUdevice one;
  CUcontext context = nullptr;
  const char* text;
  int count, version;
  CUdeviceptr p;
  EXPECT(cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&count) == CUDA_SUCCESS && count >= 1);
  EXPECT(cuDeviceGet(&one, 99) == CUDA_ERROR_INVALID_DEVICE && cudaPeekAtLastError() == cudaSuccess);
  EXPECT(cuDeviceGet(&one, 0) == CUDA_SUCCESS && cuDriverGetVersion(&version) == CUDA_SUCCESS && version >= 12000);
  EXPECT(cuCtxGetCurrent(&context) == CUDA_SUCCESS && context);  // of the runtime, which did things before
  EXPECT(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS && !strcmp(text, "out of memory"));
  EXPECT(cuGetErrorName((CUresult)123456, &text) == CUDA_ERROR_INVALID_VALUE && !text);
  int got = 0, sent = 41;
  EXPECT(cuMemAlloc(&p, 4) == CUDA_SUCCESS && cuMemcpyHtoD(p, &sent, 4) == CUDA_SUCCESS);
  EXPECT(cuMemcpyDtoH(&got, p, 4) == CUDA_SUCCESS && got == 41 && cuMemFree(p) == CUDA_SUCCESS);
  EXPECT(cuMemcpyDtoH(nullptr, p, 4) != CUDA_SUCCESS && cudaPeekAtLastError() == cudaSuccess);
}

int main() {
  int* p;
  CHECK(cudaMalloc(&p, 128));
  named_kernel<<<1, 32>>>(p);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  pools(stream);
  memory();
  arrays();
  streams();
  device();
  driver();
  puts("ok");
}
