// The device that programs are told of, and what may be asked and set of it.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "machine.h"

using namespace cudaops;

static cudaError_t only_device(int device) { return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice); }
cudaError_t cudaSetDevice(int device) { return only_device(device); }
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { *device = 0; return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
static unsigned device_flags = cudaDeviceScheduleAuto;
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  if (flags & ~cudaDeviceMask) return fail(cudaErrorInvalidValue);
  device_flags = flags;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (!flags) return fail(cudaErrorInvalidValue);
  *flags = device_flags | cudaDeviceMapHost;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned wanted, unsigned flags) {
  if (device == 0 && flags & cudaInitDeviceFlagsAreValid) return cudaSetDeviceFlags(wanted);
  return only_device(device);
}
cudaError_t cudaSetValidDevices(int* devices, int count) {
  for (int n = 0; n < count; ++n)
    if (only_device(devices[n]) != cudaSuccess) return cudaErrorInvalidDevice;
  return cudaSuccess;
}
cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }

// Facts of an A10 (GA102, sm_86), which `-arch=sm_86` code most often meets.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return fail(cudaErrorInvalidDevice);
  std::memset(p, 0, sizeof *p);
  std::strcpy(p->name, "cudaops CPU executor (sm_86)");
  p->totalGlobalMem = (size_t)24 << 30;
  p->sharedMemPerBlock = static_shared_limit;
  p->sharedMemPerBlockOptin = optin_limit();
  p->sharedMemPerMultiprocessor = 100 << 10;
  p->reservedSharedMemPerBlock = 1024;
  p->memPitch = 2147483647;
  p->totalConstMem = 64 << 10;
  p->textureAlignment = 512;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = max_threads;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = 8, p->minor = 6;
  p->multiProcessorCount = multiprocessors;
  p->clockRate = 1695000, p->memoryClockRate = 6251000, p->memoryBusWidth = 384;
  p->l2CacheSize = 6 << 20;
  p->maxThreadsPerMultiProcessor = 1536, p->maxBlocksPerMultiProcessor = 16;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = 1;
  p->concurrentManagedAccess = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->cooperativeLaunch = 1;
  p->asyncEngineCount = 2, p->deviceOverlap = 1, p->streamPrioritiesSupported = 1;
  p->singleToDoublePrecisionPerfRatio = 32;
  std::memcpy(p->uuid.bytes, "cudaops sm_86 0", sizeof p->uuid.bytes);
  p->texturePitchAlignment = 32, p->surfaceAlignment = 512;
  p->persistingL2CacheMaxSize = (6 << 20) / 4 * 3, p->accessPolicyMaxWindowSize = 134213632;
  p->computePreemptionSupported = p->canUseHostPointerForRegisteredMem = 1;
  p->hostRegisterSupported = p->memoryPoolsSupported = p->cooperativeMultiDeviceLaunch = 1;
  for (int* one : {&p->maxTexture1D, p->maxTexture2D, p->maxTexture2D + 1, &p->maxTextureCubemap}) *one = 65536;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrTotalConstantMemory: *value = (int)p.totalConstMem; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = p.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrIntegrated: *value = 0; break;
    case cudaDevAttrCanMapHostMemory: *value = 1; break;
    case cudaDevAttrComputeMode: *value = cudaComputeModeDefault; break;
    case cudaDevAttrConcurrentKernels: *value = 1; break;
    case cudaDevAttrMemoryClockRate: *value = p.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerMultiprocessor; break;
    case cudaDevAttrManagedMemory: *value = 1; break;
    case cudaDevAttrConcurrentManagedAccess: *value = 1; break;
    case cudaDevAttrCooperativeLaunch: *value = p.cooperativeLaunch; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrMemoryPoolsSupported: *value = p.memoryPoolsSupported; break;
    case cudaDevAttrMaxPitch: *value = (int)p.memPitch; break;
    case cudaDevAttrTextureAlignment: *value = (int)p.textureAlignment; break;
    case cudaDevAttrTexturePitchAlignment: *value = (int)p.texturePitchAlignment; break;
    case cudaDevAttrSurfaceAlignment: *value = (int)p.surfaceAlignment; break;
    case cudaDevAttrGpuOverlap: *value = p.deviceOverlap; break;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
    case cudaDevAttrMaxTexture1DWidth:
    case cudaDevAttrMaxTexture2DWidth:
    case cudaDevAttrMaxTexture2DHeight: *value = p.maxTexture1D; break;
    case cudaDevAttrStreamPrioritiesSupported: *value = p.streamPrioritiesSupported; break;
    case cudaDevAttrGlobalL1CacheSupported: *value = p.globalL1CacheSupported; break;
    case cudaDevAttrLocalL1CacheSupported: *value = p.localL1CacheSupported; break;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio: *value = p.singleToDoublePrecisionPerfRatio; break;
    case cudaDevAttrComputePreemptionSupported: *value = p.computePreemptionSupported; break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = p.canUseHostPointerForRegisteredMem; break;
    case cudaDevAttrReserved96: *value = p.cooperativeMultiDeviceLaunch; break;
    case cudaDevAttrHostRegisterSupported: *value = p.hostRegisterSupported; break;
    case cudaDevAttrMaxPersistingL2CacheSize: *value = p.persistingL2CacheMaxSize; break;
    case cudaDevAttrMaxAccessPolicyWindowSize: *value = p.accessPolicyMaxWindowSize; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)p.reservedSharedMemPerBlock; break;
    case cudaDevAttrMemSyncDomainCount: *value = 1; break;
    case cudaDevAttrNumaId:
    case cudaDevAttrHostNumaId: *value = -1; break;
    default:  // what it does not have
      if (attribute < 1 || attribute >= cudaDevAttrMax) return fail(cudaErrorInvalidValue);
      *value = 0;
  }
  return cudaSuccess;
}
static cudaFuncCache cache_config = cudaFuncCachePreferNone;
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) { cache_config = config; return cudaSuccess; }
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) { *config = cache_config; return cudaSuccess; }
// Banks are four bytes wide since Maxwell, whatever is asked.
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}
static size_t persisting_bytes = 0;
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  if (limit == cudaLimitPersistingL2CacheSize) persisting_bytes = std::min<size_t>(value, (size_t)p.persistingL2CacheMaxSize);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  if (limit == cudaLimitPersistingL2CacheSize) {
    *value = persisting_bytes;
    return cudaSuccess;
  }
  *value = limit == cudaLimitStackSize ? fiber_bytes : limit == cudaLimitMallocHeapSize ? 8 << 20 : 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return fail(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return fail(peer == 0 ? cudaErrorPeerAccessNotEnabled : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) { return fail(cudaErrorInvalidDevice); }
static const char bus_id[] = "0000:00:00.0";
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (device != 0) return fail(cudaErrorInvalidDevice);
  if (!id || size < 1) return fail(cudaErrorInvalidValue);
  snprintf(id, (size_t)size, "%s", bus_id);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (!device || !id) return fail(cudaErrorInvalidValue);
  int read = sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
  if (read < 3) domain = 0, read = 1 + sscanf(id, "%x:%x.%x", &bus, &slot, &function);
  if (read < 3 || domain || bus || slot || function) return fail(cudaErrorInvalidDevice);
  *device = 0;
  return cudaSuccess;
}
static constexpr int cuda_version = 13000;
cudaError_t cudaDriverGetVersion(int* version) { *version = cuda_version; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { *version = cuda_version; return cudaSuccess; }
