// The CUDA runtime API over host memory. Everything is finished when the call returns.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "cudaops/clock_reads.h"
#include "cudaops/texture.h"
#include "machine.h"

struct CUevent_st { double time; bool recorded; };
struct CUstream_st { int unused; };

namespace cudaops {

static cudaError_t last_error = cudaSuccess;
static Lasting<std::map<const void*, size_t>> kept_limits CUDAOPS_LASTING;
static std::map<const void*, size_t>& dynamic_limits = kept_limits.value;
static Lasting<std::map<uintptr_t, size_t>> kept_registered CUDAOPS_LASTING;
static std::map<uintptr_t, size_t>& registered = kept_registered.value;
// Launches that were skipped took this long, as far as the program's events can see.
double skipped_seconds = 0;

void set_error(cudaError_t error) { last_error = error; }
static cudaError_t fail(cudaError_t error) { return last_error = error; }

// A unit opts in by itself, as a launcher on a GPU would with cudaFuncSetAttribute.
static size_t unit_limit = 0;
void allow_unit_shared(size_t bytes) { unit_limit = bytes; }

size_t dynamic_limit_of(const void* function) {
  if (unit_limit) return unit_limit;
  auto found = dynamic_limits.find(function);
  return found == dynamic_limits.end() ? static_shared_limit : found->second;
}

// What a block may have at most after opting in, on the device that stands behind this run.
static size_t optin_limit() {
  static const char* text = option("CUDAOPS_SHARED_OPTIN");
  return text ? strtoull(text, nullptr, 10) : dynamic_shared_limit;
}

cudaError_t allow_dynamic_shared(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || (size_t)value > optin_limit()) return fail(cudaErrorInvalidValue);
  dynamic_limits[function] = std::max((size_t)value, static_shared_limit);
  return cudaSuccess;
}

cudaError_t function_attributes(cudaFuncAttributes* attributes, const void* function) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = max_threads;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 86;
  attributes->maxDynamicSharedSizeBytes = (int)dynamic_limit_of(function);
  return cudaSuccess;
}

// sm_86: 1536 threads, 16 blocks and 100 KiB of shared memory on a multiprocessor.
int resident_blocks(int block_threads, size_t dynamic_bytes) {
  if (block_threads <= 0 || block_threads > (int)max_threads) return 0;
  int warps = (block_threads + 31) / 32;
  int by_threads = 48 / warps, by_shared = (int)((100 << 10) / (dynamic_bytes + 1024));
  return std::min(16, std::min(by_threads, by_shared));
}
cudaError_t suggest_block(int* grid, int* block, int limit) {
  *block = limit > 0 && limit < 768 ? limit : 768;
  *grid = 72 * resident_blocks(*block, 0);
  return cudaSuccess;
}

static cudaError_t reserve(void** pointer, size_t bytes, Memory kind) {
  if (!pointer) return fail(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (!bytes) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  Allocation* a = allocate(bytes, kind, -1);
  if (!a) return fail(cudaErrorMemoryAllocation);
  *pointer = (void*)a->begin;
  return cudaSuccess;
}

static cudaError_t drop(void* pointer) {
  if (!pointer) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  check_guards(nullptr);
  return release((uintptr_t)pointer) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

// A range that starts in an allocation must end in it; host ranges are the program's own business.
static bool fits(const void* pointer, size_t bytes) {
  const Allocation* a = allocation_around((uintptr_t)pointer);
  if (!a) return true;
  auto p = (uintptr_t)pointer;
  return p >= a->begin && p + bytes <= a->begin + a->size;
}
static bool on_device(const void* pointer) {
  const Allocation* a = allocation_around((uintptr_t)pointer);
  return a && a->kind == Memory::Device;
}

// A global variable whose address was taken counts as device memory.
static bool is_global(const void* pointer) {
  for (GlobalVariable* v = global_variables; v; v = v->next)
    if (pointer >= v->address && pointer < (char*)v->address + v->size) return true;
  return false;
}

static cudaError_t check_direction(const void* to, const void* from, cudaMemcpyKind kind) {
  bool to_device = on_device(to) || is_global(to), from_device = on_device(from) || is_global(from);
  if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // Managed and pinned memory is reachable from both sides.
  bool to_either = !to_device && allocation_around((uintptr_t)to);
  bool from_either = !from_device && allocation_around((uintptr_t)from);
  if ((wants_to != to_device && !to_either) || (wants_from != from_device && !from_either))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

static void move_bytes(void* to, const void* from, size_t bytes) {
  if (!allocation_around((uintptr_t)to) && !is_global(to)) {
    std::memmove(to, from, bytes);
  } else if (std::memcmp(to, from, bytes) != 0) {
    std::memmove(to, from, bytes);
    touch();
  }
}

cudaError_t copy_symbol(void* to, const void* from, size_t bytes, size_t symbol_bytes, size_t offset,
                        bool to_symbol) {
  if (offset > symbol_bytes || bytes > symbol_bytes - offset) return fail(cudaErrorInvalidValue);
  if (to_symbol) to = (char*)to + offset;
  else from = (const char*)from + offset;
  if (!fits(to, bytes) || !fits(from, bytes)) return fail(cudaErrorInvalidValue);
  if (to_symbol && std::memcmp(to, from, bytes) != 0) touch();
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

}  // namespace cudaops

using namespace cudaops;

static const struct { cudaError_t code; const char *name, *text; } error_table[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};
const char* cudaGetErrorString(cudaError_t error) {
  for (auto& row : error_table)
    if (row.code == error) return row.text;
  return "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t error) {
  for (auto& row : error_table)
    if (row.code == error) return row.name;
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaMalloc(void** p, size_t n) { return reserve(p, n, Memory::Device); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return reserve(p, n, Memory::Device); }
cudaError_t cudaMallocHost(void** p, size_t n, unsigned) { return reserve(p, n, Memory::Pinned); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return reserve(p, n, Memory::Pinned); }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return reserve(p, n, Memory::Managed); }
cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return reserve(p, *pitch * height, Memory::Device);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* p, cudaExtent extent) {
  *p = cudaPitchedPtr{nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&p->ptr, &p->pitch, extent.width, extent.height * extent.depth);
}
cudaError_t cudaFree(void* p) { return drop(p); }
cudaError_t cudaFreeHost(void* p) { return drop(p); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return drop(p); }
// Ordinary host memory that a kernel may reach: known, though not guarded.
cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  registered[(uintptr_t)p] = n;
  touch();
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  return registered.erase((uintptr_t)p) ? cudaSuccess : fail(cudaErrorInvalidValue);
}
namespace cudaops {
bool any_registered() { return !registered.empty(); }
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  size_t used = 0;
  for (auto& a : allocations) used += a.size;
  *free_bytes = host_bytes_available();
  *total_bytes = *free_bytes + used;
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!bytes) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  if (!to || !from || !fits(to, bytes) || !fits(from, bytes)) return fail(cudaErrorInvalidValue);
  cudaError_t error = check_direction(to, from, kind);
  if (error != cudaSuccess) return fail(error);
  move_bytes(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  if (keeps([=] { cudaMemcpy(to, from, bytes, kind); })) return cudaSuccess;
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return fail(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; ++row) {
    cudaError_t error = cudaMemcpy((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t) {
  if (keeps([=] { cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind); })) return cudaSuccess;
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  if (!bytes) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  if (!p || !fits(p, bytes)) return fail(cudaErrorInvalidValue);
  if (!allocation_around((uintptr_t)p) && !is_global(p)) return fail(cudaErrorInvalidValue);
  std::memset(p, value, bytes);
  touch();
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  if (keeps([=] { cudaMemset(p, value, bytes); })) return cudaSuccess;
  return cudaMemset(p, value, bytes);
}
cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) {
    cudaError_t error = cudaMemset((char*)p + row * pitch, value, width);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
// The slice of pitched memory that a position, whose x is in bytes, and a layer further lead to.
static char* slice_of(const cudaPitchedPtr& p, cudaPos at, size_t layer) {
  return (char*)p.ptr + ((at.z + layer) * p.ysize + at.y) * p.pitch + at.x;
}
// An array as pitched memory; where one takes part, widths and x are in its elements.
static cudaPitchedPtr pitched(const cudaArray& a) {
  size_t row = row_bytes(a);
  return cudaPitchedPtr{a.data, row, row, std::max<size_t>(a.extent.height, 1)};
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  if (!copy) return fail(cudaErrorInvalidValue);
  const cudaArray* array = copy->srcArray ? copy->srcArray : copy->dstArray;
  size_t unit = array ? element_bytes(*array) : 1;
  cudaPitchedPtr from = copy->srcArray ? pitched(*copy->srcArray) : copy->srcPtr;
  cudaPitchedPtr to = copy->dstArray ? pitched(*copy->dstArray) : copy->dstPtr;
  cudaPos at_from = copy->srcPos, at_to = copy->dstPos;
  if (copy->srcArray) at_from.x *= unit;
  if (copy->dstArray) at_to.x *= unit;
  if (!from.ptr || !to.ptr) return fail(cudaErrorInvalidValue);
  for (size_t layer = 0; layer < copy->extent.depth; ++layer) {
    cudaError_t error = cudaMemcpy2D(slice_of(to, at_to, layer), to.pitch, slice_of(from, at_from, layer), from.pitch,
                                     copy->extent.width * unit, copy->extent.height, copy->kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t) {
  if (copy && keeps([copy = *copy] { cudaMemcpy3D(&copy); })) return cudaSuccess;
  return cudaMemcpy3D(copy);
}
cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent extent) {
  for (size_t layer = 0; layer < extent.depth; ++layer) {
    cudaError_t error = cudaMemset2D(slice_of(p, cudaPos{0, 0, 0}, layer), p.pitch, value, extent.width, extent.height);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent extent, cudaStream_t) { return cudaMemset3D(p, value, extent); }

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceReset() {
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  check_guards(nullptr);
  while (!allocations.empty()) release(allocations.back().begin);
  return cudaSuccess;
}
static cudaError_t only_device(int device) { return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice); }
cudaError_t cudaSetDevice(int device) { return only_device(device); }
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { *device = 0; return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

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
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    default: return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  *value = limit == cudaLimitStackSize ? fiber_bytes : limit == cudaLimitMallocHeapSize ? 8 << 20 : 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
static constexpr int cuda_version = 13000;
cudaError_t cudaDriverGetVersion(int* version) { *version = cuda_version; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { *version = cuda_version; return cudaSuccess; }

cudaError_t cudaStreamCreate(cudaStream_t* stream) { *stream = new CUstream_st{0}; return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { delete stream; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  if (keeps([=] { function(data); })) return cudaSuccess;
  function(data);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { *event = new CUevent_st{0, false}; return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { delete event; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (!event) return fail(cudaErrorInvalidResourceHandle);
  clock_read(Clock::Event);
  event->time = now() + skipped_seconds;
  event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  if (!start || !stop || !start->recorded || !stop->recorded) return fail(cudaErrorInvalidResourceHandle);
  *milliseconds = (float)((stop->time - start->time) * 1e3 * clock_rate());
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
