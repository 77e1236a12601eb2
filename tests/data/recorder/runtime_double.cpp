// A double of the CUDA runtime and of the two driver calls that the recorder makes, over host memory:
// enough for launches.cu, whose kernels it computes itself, by name. It is strict where the recorder
// could disturb a program: calls that graph capture forbids, errors that are left behind, events that
// are read too early or after a reset.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

static cudaError_t last = cudaSuccess, lost = cudaSuccess, pending = cudaSuccess;
static cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
static double clock_us = 0;
static unsigned long done = 0, now = 0;  // what has been waited for, and what was asked for
static bool unloaded = false;

// A kernel with its arguments, of at most eight bytes each.
struct CUgraphNode_st { const void* function; unsigned threads; std::vector<unsigned long long> args; CUgraphNode_st* of; };
// Nodes that wait for one another in this order.
struct CUgraph_st { std::vector<CUgraphNode_st*> nodes; };
struct CUstream_st { bool capturing, broken; CUgraph_st* graph; };
struct CUevent_st { double at; unsigned long number; };
struct Memory { size_t size; bool managed; };
static std::map<uintptr_t, Memory> memory;
static std::set<cudaStream_t> streams;
static std::set<cudaEvent_t> events;
static std::map<const void*, std::string> kernels;
static std::map<const void*, std::pair<void*, size_t>> symbols;

static cudaError_t told(cudaError_t error) {
  if (unloaded) return cudaErrorCudartUnloading;
  if (lost != cudaSuccess) error = lost;
  if (error != cudaSuccess) last = error;
  return error;
}

// A call that tears up a capture that is going on.
static bool forbidden() {
  bool any = false;
  for (auto stream : streams)
    if (stream->capturing) any = stream->broken = true;
  return any;
}

static cudaError_t settle() {
  if (forbidden()) return told(cudaErrorStreamCaptureUnsupported);
  done = now;
  lost = lost != cudaSuccess ? lost : pending;
  return told(cudaSuccess);
}

static void* reserve(size_t bytes, bool managed) {
  void* p = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(p, 0, bytes);
  memory[(uintptr_t)p] = {bytes, managed};
  return p;
}

static const std::pair<const uintptr_t, Memory>* around(uintptr_t p) {
  auto next = memory.upper_bound(p);
  if (next == memory.begin()) return nullptr;
  --next;
  return p < next->first + next->second.size ? &*next : nullptr;
}

// ---- the kernels of launches.cu
static void compute(const std::string& name, unsigned threads, void** a) {
  if (name.find("scale") != std::string::npos) {
    float k = *(float*)a[0];
    auto *x = *(const float**)a[1];
    auto *y = *(float**)a[2];
    float step = 0;
    for (auto& [host, where] : symbols) memcpy(&step, where.first, sizeof step);
    for (int i = 0; i < *(int*)a[3]; ++i) y[i] = k * x[i] + step;
    clock_us += 1000;
  } else if (name.find("twice") != std::string::npos) {
    auto* x = *(int**)a[0];
    for (unsigned i = 0; i < threads; ++i) x[i] *= 2;
    clock_us += 10;
  } else if (name.find("broken") != std::string::npos) {
    pending = cudaErrorIllegalAddress;
  }
}

extern "C" {
void** __cudaRegisterFatBinary(void*) { static void* handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) { unloaded = true; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernels[host] = name;
}
void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t size, int, int) {
  symbols[host] = {calloc(1, size), size};
}

static struct { dim3 grid, block; size_t bytes; cudaStream_t stream; } pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t bytes, cudaStream_t stream) {
  pushed = {grid, block, bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* bytes, void* stream) {
  *grid = pushed.grid, *block = pushed.block, *bytes = pushed.bytes, *(cudaStream_t*)stream = pushed.stream;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args, size_t, cudaStream_t stream) {
  auto found = kernels.find(function);
  if (found == kernels.end()) return told(cudaErrorInvalidDeviceFunction);
  if (block.x * block.y * block.z > 1024) return told(cudaErrorInvalidConfiguration);
  if (mode != cudaStreamCaptureModeGlobal) return told(cudaErrorUnknown);  // the program's own mode was not given back
  if (stream && stream->capturing) {
    size_t count = found->second.find("scale") != std::string::npos ? 4 : found->second.find("twice") != std::string::npos;
    std::vector<unsigned long long> kept;
    for (size_t i = 0; i < count; ++i) {
      kept.push_back(0);
      memcpy(&kept.back(), args[i], count == 4 && (i == 0 || i == 3) ? 4 : 8);
    }
    stream->graph->nodes.push_back(new CUgraphNode_st{function, grid.x * block.x, kept, nullptr});
    return told(cudaSuccess);
  }
  ++now;
  if (lost == cudaSuccess) compute(found->second, grid.x * block.x, args);
  return told(cudaSuccess);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args, size_t bytes,
                                        cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, args, bytes, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* function, void** args) {
  return cudaLaunchKernel(function, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t bytes, cudaStream_t stream) {
  return cudaLaunchKernel((const void*)kernel, grid, block, args, bytes, stream);
}

cudaError_t cudaGetLastError() {
  cudaError_t error = lost != cudaSuccess ? lost : last;
  last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return lost != cudaSuccess ? lost : last; }
static const struct { cudaError_t code; const char *name, *text; } table[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
};
const char* cudaGetErrorString(cudaError_t error) {
  for (auto& row : table)
    if (row.code == error) return row.text;
  return "some other error";
}
const char* cudaGetErrorName(cudaError_t error) {
  for (auto& row : table)
    if (row.code == error) return row.name;
  return "cudaErrorOther";
}

cudaError_t cudaMalloc(void** p, size_t bytes) { return *p = reserve(bytes, false), told(cudaSuccess); }
cudaError_t cudaMallocManaged(void** p, size_t bytes, unsigned) { return *p = reserve(bytes, true), told(cudaSuccess); }
cudaError_t cudaFree(void* p) {
  if (mode != cudaStreamCaptureModeRelaxed && forbidden()) return told(cudaErrorStreamCaptureUnsupported);
  if (p && !memory.erase((uintptr_t)p)) return told(cudaErrorInvalidValue);
  return told(cudaSuccess);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (cudaError_t error = settle()) return error;
  memcpy(to, from, bytes);
  return told(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!streams.count(stream)) abort();
  if (mode != cudaStreamCaptureModeRelaxed && forbidden()) return told(cudaErrorStreamCaptureUnsupported);
  memcpy(to, from, bytes);
  return told(cudaSuccess);
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) { return *p = malloc(bytes), told(cudaSuccess); }
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t, cudaMemcpyKind) {
  memcpy(symbols.at(symbol).first, from, bytes);
  return told(cudaSuccess);
}
cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) { return *p = symbols.at(symbol).first, told(cudaSuccess); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  *a = {};
  if (auto found = around((uintptr_t)p)) a->type = found->second.managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
  return told(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 0, told(cudaSuccess); }
cudaError_t cudaGetDevice(int* device) { return *device = 0, told(cudaSuccess); }
cudaError_t cudaSetDevice(int) { return told(cudaSuccess); }
cudaError_t cudaDeviceSynchronize() { return settle(); }
cudaError_t cudaDeviceReset() {
  memory.clear(), events.clear(), streams.clear();
  return told(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return streams.insert(*stream = new CUstream_st{}), told(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream && stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return told(cudaSuccess);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->graph = new CUgraph_st{};
  return stream->capturing = true, told(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream->capturing = false;
  *graph = stream->broken ? nullptr : stream->graph;
  return told(stream->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t* graph,
                                     const cudaGraphNode_t** last, const cudaGraphEdgeData**, size_t* count) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t* graph,
                                        const cudaGraphNode_t** last, size_t* count) {
#endif
  cudaStreamIsCapturing(stream, status);
  *graph = stream->graph;
  *count = !stream->graph->nodes.empty();
  *last = *count ? &stream->graph->nodes.back() : nullptr;
  return told(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = graph->nodes[i];
  return *count = graph->nodes.size(), told(cudaSuccess);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData*, size_t* count) {
#else
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, size_t* count) {
#endif
  for (size_t i = 0; from && i < *count; ++i) from[i] = graph->nodes[i], to[i] = graph->nodes[i + 1];
  return *count = graph->nodes.empty() ? 0 : graph->nodes.size() - 1, told(cudaSuccess);
}
cudaError_t cudaGraphClone(cudaGraph_t* copy, cudaGraph_t graph) {
  *copy = new CUgraph_st{};
  for (auto* node : graph->nodes) (*copy)->nodes.push_back(new CUgraphNode_st{node->function, node->threads, node->args, node});
  return told(cudaSuccess);
}
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* found, cudaGraphNode_t node, cudaGraph_t copy) {
  for (auto* each : copy->nodes)
    if (each->of == node) return *found = each, told(cudaSuccess);
  return told(cudaErrorInvalidValue);
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) { return node->function = nullptr, told(cudaSuccess); }
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  auto* copy = new CUgraph_st{};
  for (auto* node : graph->nodes)
    if (node->function) copy->nodes.push_back(new CUgraphNode_st(*node));
  return *made = (cudaGraphExec_t)copy, told(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, told(cudaSuccess); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete (cudaGraph_t)exec, told(cudaSuccess); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (auto* node : ((cudaGraph_t)exec)->nodes) {
    std::vector<void*> args;
    for (auto& one : node->args) args.push_back(&one);
    ++now;
    if (lost == cudaSuccess) compute(kernels.at(node->function), node->threads, args.data());
  }
  return told(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) { return std::swap(*other, mode), told(cudaSuccess); }

cudaError_t cudaEventCreate(cudaEvent_t* event) { return events.insert(*event = new CUevent_st{}), told(cudaSuccess); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return told(events.erase(event) ? cudaSuccess : cudaErrorInvalidResourceHandle); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (!events.count(event)) abort();
  event->at = clock_us += 1;
  event->number = ++now;
  return told(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!events.count(event)) abort();
  if (mode != cudaStreamCaptureModeRelaxed && forbidden()) return told(cudaErrorStreamCaptureUnsupported);
  return told(event->number <= done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!events.count(event)) abort();
  return settle();
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  if (!events.count(start) || !events.count(stop)) abort();
  if (start->number > done || stop->number > done) return told(cudaErrorNotReady);
  *ms = (float)((stop->at - start->at) * 1e-3);
  return told(cudaSuccess);
}

// ---- the driver
static CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
  auto found = around((uintptr_t)p);
  if (!found || found->second.managed) return CUDA_ERROR_NOT_FOUND;
  *base = found->first, *size = found->second.size;
  return CUDA_SUCCESS;
}
static CUresult pointer_attributes(unsigned count, CUpointer_attribute* wanted, void** data, CUdeviceptr p) {
  auto found = around((uintptr_t)p);
  for (unsigned i = 0; i < count; ++i)
    if (wanted[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *(CUdeviceptr*)data[i] = found ? found->first : 0;
    else if (wanted[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *(size_t*)data[i] = found ? found->second.size : 0;
    else return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  *found = !strcmp(name, "cuMemGetAddressRange") ? (void*)&address_range
           : !strcmp(name, "cuPointerGetAttributes") ? (void*)&pointer_attributes : nullptr;
  *status = *found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return told(version > 13000 ? cudaErrorInvalidValue : cudaSuccess);
}
}
