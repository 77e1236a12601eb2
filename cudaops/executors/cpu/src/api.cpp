// The CUDA runtime API over host memory. Everything is finished when the call returns.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "cudaops/clock_reads.h"
#include "cudaops/texture.h"
#include "machine.h"

struct CUevent_st { double time; bool recorded; unsigned flags; };
struct CUstream_st {
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  unsigned long long id = 0;
  std::map<int, cudaLaunchAttributeValue> attributes;
};

namespace cudaops {

static cudaError_t last_error = cudaSuccess;
static Lasting<std::map<const void*, size_t>> kept_limits CUDAOPS_LASTING;
static std::map<const void*, size_t>& dynamic_limits = kept_limits.value;
static Lasting<std::map<uintptr_t, size_t>> kept_registered CUDAOPS_LASTING;
static std::map<uintptr_t, size_t>& registered = kept_registered.value;
static Lasting<std::map<uintptr_t, unsigned>> kept_host_flags CUDAOPS_LASTING;
static std::map<uintptr_t, unsigned>& host_flags = kept_host_flags.value;
// Launches that were skipped took this long, as far as the program's events can see.
double skipped_seconds = 0;

void set_error(cudaError_t error) { last_error = error; }
cudaError_t fail(cudaError_t error) { return last_error = error; }

// A unit opts in by itself, as a launcher on a GPU would with cudaFuncSetAttribute.
static size_t unit_limit = 0;
void allow_unit_shared(size_t bytes) { unit_limit = bytes; }

size_t dynamic_limit_of(const void* function) {
  if (unit_limit) return unit_limit;
  auto found = dynamic_limits.find(function);
  return found == dynamic_limits.end() ? static_shared_limit : found->second;
}

// What a block may have at most after opting in, on the device that stands behind this run.
size_t optin_limit() {
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

int device_multiprocessors() { return multiprocessors; }
// sm_86: 1536 threads, 16 blocks and 100 KiB of shared memory on a multiprocessor.
int resident_blocks(int block_threads, size_t dynamic_bytes) {
  if (block_threads <= 0 || block_threads > (int)max_threads) return 0;
  int warps = (block_threads + 31) / 32;
  int by_threads = 48 / warps, by_shared = (int)((100 << 10) / (dynamic_bytes + 1024));
  return std::min(16, std::min(by_threads, by_shared));
}
cudaError_t suggest_block(int* grid, int* block, int limit) {
  *block = limit > 0 && limit < 768 ? limit : 768;
  *grid = multiprocessors * resident_blocks(*block, 0);
  return cudaSuccess;
}

cudaError_t function_name(const char** name, const void* function) {
  if (!name || !function) return fail(cudaErrorInvalidValue);
  const char* found = name_of_function((uintptr_t)function);
  if (!found) return fail(cudaErrorInvalidDeviceFunction);
  *name = found;
  return cudaSuccess;
}
// What each of so many blocks may have, of the 100 KiB of a multiprocessor, of which a block reserves one.
cudaError_t dynamic_shared_left(size_t* bytes, int blocks, int block_threads) {
  if (!bytes || blocks < 1 || block_threads < 1 || blocks > resident_blocks(block_threads, 0))
    return fail(cudaErrorInvalidValue);
  *bytes = std::min<size_t>((100 << 10) / (size_t)blocks - 1024, optin_limit()) / 128 * 128;
  return cudaSuccess;
}

cudaError_t reserve(void** pointer, size_t bytes, Memory kind) {
  if (!pointer) return fail(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (!bytes) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  Allocation* a = allocate(bytes, kind, -1);
  if (!a) return fail(cudaErrorMemoryAllocation);
  *pointer = (void*)a->begin;
  return cudaSuccess;
}

cudaError_t drop(void* pointer) {
  if (!pointer || is_of_graph(pointer)) return cudaSuccess;
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
bool is_global(const void* pointer) {
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
cudaError_t copy_symbol_async(void* to, const void* from, size_t bytes, size_t symbol_bytes, size_t offset,
                              bool to_symbol) {
  char* there = (char*)to + (to_symbol ? offset : 0);
  if (keeps(copy_of(there, (const char*)from + (to_symbol ? 0 : offset), bytes, cudaMemcpyDefault))) return cudaSuccess;
  return copy_symbol(to, from, bytes, symbol_bytes, offset, to_symbol);
}
// As the runtime itself has a copy in one piece.
cudaMemcpy3DParms copy_of(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms p{};
  p.dstPtr = make_cudaPitchedPtr(to, bytes, bytes, 1);
  p.srcPtr = make_cudaPitchedPtr((void*)from, bytes, bytes, 1);
  p.extent = make_cudaExtent(bytes, 1, 1);
  p.kind = kind;
  return p;
}

}  // namespace cudaops

using namespace cudaops;

cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaMalloc(void** p, size_t n) { return reserve(p, n, Memory::Device); }
cudaError_t cudaMallocHost(void** p, size_t n, unsigned flags) { return cudaHostAlloc(p, n, flags); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned flags) {
  cudaError_t error = reserve(p, n, Memory::Pinned);
  if (error == cudaSuccess && n) host_flags[(uintptr_t)*p] = flags;
  return error;
}
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return reserve(p, n, Memory::Managed); }
cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return reserve(p, *pitch * height, Memory::Device);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* p, cudaExtent extent) {
  *p = cudaPitchedPtr{nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&p->ptr, &p->pitch, extent.width, extent.height * extent.depth);
}
cudaError_t cudaFree(void* p) {
  leave_pool(p);
  return drop(p);
}
cudaError_t cudaFreeHost(void* p) { return drop(p); }
// Ordinary host memory that a kernel may reach: known, though not guarded.
cudaError_t cudaHostRegister(void* p, size_t n, unsigned flags) {
  registered[(uintptr_t)p] = n;
  host_flags[(uintptr_t)p] = flags;
  touch();
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  return registered.erase((uintptr_t)p) ? cudaSuccess : fail(cudaErrorInvalidValue);
}
namespace cudaops {
bool any_registered() { return !registered.empty(); }
static bool is_registered(const void* p) {
  auto after = registered.upper_bound((uintptr_t)p);
  if (after == registered.begin()) return false;
  --after;
  return (uintptr_t)p - after->first < after->second;
}
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  auto found = host_flags.find((uintptr_t)host);
  const Allocation* a = allocation_around((uintptr_t)host);
  bool is_pinned = is_registered(host) || (a && a->kind == Memory::Pinned);
  if (!flags || !is_pinned) return fail(cudaErrorInvalidValue);
  *flags = (found == host_flags.end() ? 0 : found->second) | cudaHostAllocMapped;  // one address space
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (!attributes) return fail(cudaErrorInvalidValue);
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  auto p = (void*)pointer;
  const Allocation* a = allocation_around((uintptr_t)pointer);
  if (a && ((uintptr_t)pointer < a->begin || (uintptr_t)pointer >= a->begin + a->size)) a = nullptr;
  if (a && a->kind == Memory::Managed) *attributes = {cudaMemoryTypeManaged, 0, p, p};
  else if (is_registered(pointer) || (a && a->kind == Memory::Pinned)) *attributes = {cudaMemoryTypeHost, 0, p, p};
  else if (a || is_global(pointer)) *attributes = {cudaMemoryTypeDevice, 0, p, nullptr};
  else *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, p};
  return cudaSuccess;
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
  if (keeps(copy_of(to, from, bytes, kind))) return cudaSuccess;
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
  cudaMemcpy3DParms copy = copy_of(to, from, width, kind);
  copy.dstPtr.pitch = to_pitch, copy.srcPtr.pitch = from_pitch;
  copy.dstPtr.ysize = copy.srcPtr.ysize = copy.extent.height = height;
  if (keeps(copy)) return cudaSuccess;
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
  if (keeps(cudaMemsetParams{p, bytes, (unsigned)value, 1, bytes, 1})) return cudaSuccess;
  return cudaMemset(p, value, bytes);
}
cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) {
    cudaError_t error = cudaMemset((char*)p + row * pitch, value, width);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int value, size_t width, size_t height, cudaStream_t) {
  if (keeps(cudaMemsetParams{p, pitch, (unsigned)value, 1, width, height})) return cudaSuccess;
  return cudaMemset2D(p, pitch, value, width, height);
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  if (to_device || from_device) return fail(cudaErrorInvalidDevice);
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  if (to_device || from_device) return fail(cudaErrorInvalidDevice);
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
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
  if (copy && keeps(*copy)) return cudaSuccess;
  return cudaMemcpy3D(copy);
}
static cudaMemcpy3DParms without_devices(const cudaMemcpy3DPeerParms& p) {
  return {p.srcArray, p.srcPos, p.srcPtr, p.dstArray, p.dstPos, p.dstPtr, p.extent, cudaMemcpyDefault};
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* copy, cudaStream_t stream) {
  if (!copy) return fail(cudaErrorInvalidValue);
  if (copy->srcDevice || copy->dstDevice) return fail(cudaErrorInvalidDevice);
  cudaMemcpy3DParms same = without_devices(*copy);
  return cudaMemcpy3DAsync(&same, stream);
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* copy) {
  if (!copy) return fail(cudaErrorInvalidValue);
  if (copy->srcDevice || copy->dstDevice) return fail(cudaErrorInvalidDevice);
  cudaMemcpy3DParms same = without_devices(*copy);
  return cudaMemcpy3D(&same);
}
cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent extent) {
  for (size_t layer = 0; layer < extent.depth; ++layer) {
    cudaError_t error = cudaMemset2D(slice_of(p, cudaPos{0, 0, 0}, layer), p.pitch, value, extent.width, extent.height);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent extent, cudaStream_t stream) {
  for (size_t layer = 0; layer < extent.depth; ++layer) {
    char* slice = slice_of(p, cudaPos{0, 0, 0}, layer);
    cudaError_t error = cudaMemset2DAsync(slice, p.pitch, value, extent.width, extent.height, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  settle_pools();
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  check_guards(nullptr);
  while (!allocations.empty()) release(allocations.back().begin);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  static std::atomic<unsigned long long> made{2};  // the first are the device's own streams
  if (!stream) return fail(cudaErrorInvalidValue);
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  *stream = new CUstream_st{flags, std::min(least, std::max(greatest, priority)), ++made, {}};
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
// Those that nobody makes are one.
static bool is_own(cudaStream_t stream) { return stream <= cudaStreamFireAndForget; }
static CUstream_st& known(cudaStream_t stream) {
  static auto* default_stream = new CUstream_st{cudaStreamDefault, 0, 1, {}};
  return is_own(stream) ? *default_stream : *stream;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (is_own(stream)) return fail(cudaErrorInvalidResourceHandle);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  if (!flags) return fail(cudaErrorInvalidValue);
  *flags = known(stream).flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  if (!priority) return fail(cudaErrorInvalidValue);
  *priority = known(stream).priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  if (!id) return fail(cudaErrorInvalidValue);
  *id = known(stream).id;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) { return cudaGetDevice(device); }
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaLaunchAttributeID id, const cudaLaunchAttributeValue* value) {
  if (!value) return fail(cudaErrorInvalidValue);
  known(stream).attributes[id] = *value;
  if (id == cudaLaunchAttributePriority) known(stream).priority = value->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaLaunchAttributeID id, cudaLaunchAttributeValue* value) {
  if (!value) return fail(cudaErrorInvalidValue);
  auto found = known(stream).attributes.find(id);
  std::memset((void*)value, 0, sizeof *value);
  if (found != known(stream).attributes.end()) *value = found->second;
  else if (id == cudaLaunchAttributePriority) value->priority = known(stream).priority;
  else if (id == cudaLaunchAttributeSynchronizationPolicy) value->syncPolicy = cudaSyncPolicyAuto;
  return cudaSuccess;
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  auto attributes = known(from).attributes;
  known(to).attributes = std::move(attributes);
  return cudaSuccess;
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void* pointer, size_t, unsigned flags) {
  const Allocation* a = allocation_around((uintptr_t)pointer);
  bool is_one = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
  bool is_managed = a ? a->kind == Memory::Managed : is_global(pointer);
  return is_one && is_managed ? cudaSuccess : fail(cudaErrorInvalidValue);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  settle_pools();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  if (keeps(cudaHostNodeParams{function, data})) return cudaSuccess;
  function(data);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (!event) return fail(cudaErrorInvalidValue);
  *event = new CUevent_st{0, false, flags};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { delete event; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (!event) return fail(cudaErrorInvalidResourceHandle);
  clock_read(Clock::Event);
  event->time = now() + skipped_seconds;
  event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags == cudaEventRecordExternal && keeps_event(cudaGraphNodeTypeEventRecord, event)) return cudaSuccess;
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  settle_pools();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  if (!start || !stop || !start->recorded || !stop->recorded) return fail(cudaErrorInvalidResourceHandle);
  if ((start->flags | stop->flags) & cudaEventDisableTiming) return fail(cudaErrorInvalidResourceHandle);
  *milliseconds = (float)((stop->time - start->time) * 1e3 * clock_rate());
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
