// Stands for libcuda.so.1 and libnvidia-ml.so.1 in tests: the C functions that the runner reaches
// through cuda.bindings and pynvml, over host memory. It is here so that every call is really made
// with the arguments a driver would get; it says nothing about how a GPU behaves.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {
enum { Success = 0, InvalidValue = 1, OutOfMemory = 2, NoDevice = 100, InvalidImage = 200,
       NotFound = 500, IllegalAddress = 700 };
using Pointer = unsigned long long;

struct Function { std::string name; std::vector<size_t> sizes; int shared = 48 << 10; };
struct Variable { void* at; size_t size; };
struct Module { std::map<std::string, Function> functions; std::map<std::string, Variable> variables; };
struct Event { double ms = -1; };

struct Node { Function* function; std::vector<std::vector<char>> values; };
struct Graph { std::vector<Node> nodes; };
Graph* capturing = nullptr;

int sticky = Success, pinned_limit = -1, stream;
size_t taken = 0;
std::map<Pointer, size_t> blocks;

double now_ms() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
bool inside(Pointer at, size_t size) {
  auto b = blocks.upper_bound(at);
  if (b == blocks.begin()) return false;
  --b;
  return at + size <= b->first + b->second;
}
}  // namespace

extern "C" {
int cuInit(unsigned flags) { const char* v = getenv("CUDA_VISIBLE_DEVICES"); return flags ? InvalidValue : v && !*v ? NoDevice : Success; }
int cuDriverGetVersion(int* v) { *v = 13010; return Success; }
int cuGetErrorName(int, const char** s) { *s = "CUDA_ERROR_FAKE"; return Success; }
int cuGetErrorString(int e, const char** s) { *s = e == IllegalAddress ? "an illegal memory access was encountered" : "fake"; return Success; }
int cuDeviceGet(int* d, int ordinal) { *d = ordinal; return ordinal == 0 ? Success : 101; }
int cuDeviceGetName(char* s, int n, int) { snprintf(s, n, "Fake H0"); return Success; }
int cuDeviceGetUuid_v2(unsigned char* u, int) { for (int i = 0; i < 16; ++i) u[i] = (unsigned char)i; return Success; }
int cuDeviceGetUuid(unsigned char* u, int d) { return cuDeviceGetUuid_v2(u, d); }
int cuDeviceGetPCIBusId(char* s, int n, int) { snprintf(s, n, "0000:01:00.0"); return Success; }
int cuDeviceTotalMem_v2(size_t* n, int) { *n = 1ull << 30; return Success; }
int cuDeviceGetAttribute(int* v, int attribute, int) {
  switch (attribute) {
    case 13: *v = 1980000; break;   // CLOCK_RATE, kHz
    case 16: *v = 132; break;       // MULTIPROCESSOR_COUNT
    case 36: *v = 0; break;         // MEMORY_CLOCK_RATE: not known
    case 37: *v = 6144; break;      // GLOBAL_MEMORY_BUS_WIDTH
    case 38: *v = 1 << 20; break;   // L2_CACHE_SIZE
    case 75: *v = 9; break;         // COMPUTE_CAPABILITY_MAJOR
    case 76: *v = 0; break;
    case 97: *v = 232448; break;    // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    default: return InvalidValue;
  }
  return Success;
}
int cuDevicePrimaryCtxRetain(void** c, int) { *c = &stream; return Success; }
int cuDevicePrimaryCtxRelease_v2(int) { return sticky; }
int cuCtxSetCurrent(void*) { return Success; }
int cuCtxSetLimit(int limit, size_t value) { if (limit != 6) return InvalidValue; pinned_limit = (int)value; return Success; }
int cuCtxResetPersistingL2Cache() { return pinned_limit == 0 ? sticky : InvalidValue; }
int cuStreamCreate(void** s, unsigned flags) { *s = &stream; return flags == 1 ? Success : InvalidValue; }
int cuStreamDestroy_v2(void*) { return sticky; }
int cuStreamSynchronize(void* s) { return s == &stream ? sticky : InvalidValue; }

int cuModuleLoadData(Module** m, const void* image) {
  std::istringstream text((const char*)image);
  std::string line, word, name;
  if (!std::getline(text, line)) return InvalidImage;
  if (line.rfind(".version", 0) == 0) {  // PTX: the entries of it
    *m = new Module;
    while (std::getline(text, line)) {
      size_t at = line.find(".entry ");
      if (at == std::string::npos) continue;
      name = line.substr(at + 7, line.find('(') - at - 7);
      (*m)->functions[name] = Function{name, {}};
    }
    return Success;
  }
  if (line != "fake cubin") return InvalidImage;
  *m = new Module;
  while (std::getline(text, line) && line != "end") {
    std::istringstream words(line);
    words >> word >> name;
    if (word == "kernel") {
      Function f{name, {}};
      for (size_t n; words >> n;) f.sizes.push_back(n);
      (*m)->functions[name] = f;
    } else {
      size_t n;
      words >> n;
      void* at = calloc(1, n);
      (*m)->variables[name] = {at, n};
      blocks[(Pointer)at] = n;
    }
  }
  return Success;
}
int cuModuleUnload(Module* m) { for (auto& v : m->variables) { blocks.erase((Pointer)v.second.at); free(v.second.at); } delete m; return sticky; }
int cuModuleGetFunction(Function** f, Module* m, const char* name) {
  auto found = m->functions.find(name);
  if (found == m->functions.end()) return NotFound;
  *f = &found->second;
  return Success;
}
int cuModuleGetGlobal_v2(Pointer* at, size_t* n, Module* m, const char* name) {
  auto found = m->variables.find(name);
  if (found == m->variables.end()) return NotFound;
  *at = (Pointer)found->second.at;
  *n = found->second.size;
  return Success;
}
int cuFuncGetParamInfo(Function* f, size_t index, size_t* offset, size_t* size) {
  if (index >= f->sizes.size()) return InvalidValue;
  *offset = 0;
  *size = f->sizes[index];
  return Success;
}
int cuFuncSetAttribute(Function* f, int attribute, int value) {
  if (attribute != 8 || value > 232448) return InvalidValue;
  f->shared = value;
  return Success;
}
int cuMemAlloc_v2(Pointer* at, size_t n) {
  if (n == 0) return InvalidValue;
  if (taken + n > (1ull << 28)) return OutOfMemory;
  *at = (Pointer)aligned_alloc(256, (n + 255) / 256 * 256);
  blocks[*at] = n;
  taken += n;
  return sticky;
}
int cuMemFree_v2(Pointer at) {
  if (sticky) return sticky;
  auto b = blocks.find(at);
  if (b == blocks.end()) return InvalidValue;
  taken -= b->second;
  blocks.erase(b);
  free((void*)at);
  return Success;
}
int cuMemHostAlloc(void** at, size_t n, unsigned) { *at = malloc(n); return *at ? sticky : InvalidValue; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) { *total = 1ull << 28; *free_bytes = *total - taken; return sticky; }
int cuMemsetD8Async(Pointer at, unsigned char byte, size_t n, void* s) { if (s != &stream || !inside(at, n)) return InvalidValue; memset((void*)at, byte, n); return sticky; }
int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t n, void* s) { if (s != &stream || !inside(to, n)) return InvalidValue; memcpy((void*)to, from, n); return sticky; }
int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t n, void* s) { if (s != &stream || !inside(from, n)) return InvalidValue; memcpy(to, (void*)from, n); return sticky; }
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t n, void* s) { if (s != &stream || !inside(to, n) || !inside(from, n)) return InvalidValue; memcpy((void*)to, (void*)from, n); return sticky; }

int cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* s, void** given, void** extra) {
  if (s != &stream || extra || (int)shared > f->shared || bx * by * bz > 1024) return InvalidValue;
  if (f->name == "cudaops_fill_shared") {
    printf("shared memory of %u blocks: %u words of %x\n", gx, *(unsigned*)given[0], *(unsigned*)given[1]);
    return fflush(stdout), *(unsigned*)given[0] * 4 == shared ? sticky : InvalidValue;
  }
  if (capturing) {
    Node node{f, {}};
    for (size_t i = 0; i < f->sizes.size(); ++i)
      node.values.emplace_back((char*)given[i], (char*)given[i] + f->sizes[i]);
    return capturing->nodes.push_back(node), Success;
  }
  if (f->name == "cudaops_empty") return given ? InvalidValue : sticky;
  if (f->name == "nothing") return given ? InvalidValue : sticky;
  if (f->name == "illegal") { sticky = IllegalAddress; return Success; }
  if (f->name == "prints") { printf("device says %u %u %u\n", gx, gy, gz); fflush(stdout); return Success; }
  const float* a = *(const float**)given[0];
  float* b = *(float**)given[1];
  int n = *(int*)given[2];
  float scale = *(float*)given[3];
  for (int i = 0; i < n; ++i) b[i] = a[i] * scale;
  return sticky;
}
int cuStreamBeginCapture_v2(void* s, int mode) {
  if (s != &stream || mode != 1 || capturing) return InvalidValue;
  return capturing = new Graph, Success;
}
int cuStreamEndCapture(void* s, Graph** g) {
  if (s != &stream || !capturing) return InvalidValue;
  *g = capturing;
  return capturing = nullptr, Success;
}
int cuGraphInstantiateWithFlags(Graph** ready, Graph* g, unsigned long long flags) {
  if (getenv("FAKE_NO_GRAPHS")) return 801;
  *ready = new Graph(*g);
  return flags ? InvalidValue : Success;
}
int cuGraphDestroy(Graph* g) { delete g; return Success; }
int cuGraphExecDestroy(Graph* g) { delete g; return Success; }
int cuGraphLaunch(Graph* g, void* s) {
  for (Node& node : g->nodes) {
    std::vector<void*> given;
    for (auto& value : node.values) given.push_back(value.data());
    int status = cuLaunchKernel(node.function, 1, 1, 1, 1, 1, 1, 0, s, given.empty() ? nullptr : given.data(), nullptr);
    if (status) return status;
  }
  return sticky;
}
int cuEventCreate(Event** e, unsigned flags) { *e = new Event; return flags ? InvalidValue : Success; }
int cuEventDestroy_v2(Event* e) { delete e; return Success; }
int cuEventRecord(Event* e, void* s) { e->ms = now_ms(); return s == &stream ? sticky : InvalidValue; }
int cuEventSynchronize(Event*) { return sticky; }
int cuEventElapsedTime_v2(float* ms, Event* a, Event* b) { if (a->ms < 0 || b->ms < 0) return 400; *ms = (float)(b->ms - a->ms); return sticky; }
int cuEventElapsedTime(float* ms, Event* a, Event* b) { return cuEventElapsedTime_v2(ms, a, b); }
int cuProfilerStart() { return sticky; }
int cuProfilerStop() { return sticky; }

int cuGetProcAddress_v2(const char* name, void** at, int, unsigned long long, int* status) {
#define KNOWN(f) {#f, (void*)&f}
#define KNOWN_2(f) {#f, (void*)&f##_v2}
  static const std::map<std::string, void*> known = {
      KNOWN(cuInit), KNOWN(cuDriverGetVersion), KNOWN(cuGetErrorName), KNOWN(cuGetErrorString), KNOWN(cuDeviceGet),
      KNOWN(cuDeviceGetName), KNOWN(cuDeviceGetUuid), KNOWN(cuDeviceGetPCIBusId), KNOWN_2(cuDeviceTotalMem),
      KNOWN(cuDeviceGetAttribute), KNOWN(cuDevicePrimaryCtxRetain), KNOWN_2(cuDevicePrimaryCtxRelease),
      KNOWN(cuCtxSetCurrent), KNOWN(cuCtxSetLimit), KNOWN(cuCtxResetPersistingL2Cache), KNOWN(cuStreamCreate),
      KNOWN_2(cuStreamDestroy), KNOWN(cuStreamSynchronize), KNOWN(cuModuleLoadData), KNOWN(cuModuleUnload),
      KNOWN(cuModuleGetFunction), KNOWN_2(cuModuleGetGlobal), KNOWN(cuFuncSetAttribute), KNOWN_2(cuMemAlloc),
      KNOWN_2(cuMemFree), KNOWN(cuMemHostAlloc), KNOWN_2(cuMemGetInfo), KNOWN(cuMemsetD8Async), KNOWN_2(cuMemcpyHtoDAsync),
      KNOWN_2(cuMemcpyDtoHAsync), KNOWN_2(cuMemcpyDtoDAsync), KNOWN(cuLaunchKernel), KNOWN(cuEventCreate),
      KNOWN_2(cuEventDestroy), KNOWN(cuEventRecord), KNOWN(cuEventSynchronize), KNOWN_2(cuEventElapsedTime),
      KNOWN(cuProfilerStart), KNOWN(cuProfilerStop), KNOWN_2(cuStreamBeginCapture), KNOWN(cuStreamEndCapture),
      KNOWN(cuGraphInstantiateWithFlags), {"cuGraphInstantiate", (void*)&cuGraphInstantiateWithFlags},
      KNOWN(cuGraphDestroy), KNOWN(cuGraphExecDestroy), KNOWN(cuGraphLaunch),
  };
  auto found = known.find(name);
  *at = found == known.end() ? nullptr : found->second;
  if (!strcmp(name, "cuFuncGetParamInfo") && !getenv("FAKE_OLD_DRIVER")) *at = (void*)&cuFuncGetParamInfo;
  if (!strcmp(name, "cuGetProcAddress")) *at = (void*)&cuGetProcAddress_v2;
  if (status) *status = *at ? 0 : 1;
  return *at ? Success : NotFound;
}
int cuGetProcAddress(const char* name, void** at, int version, unsigned long long flags) { return cuGetProcAddress_v2(name, at, version, flags, nullptr); }

// NVML
struct Temperature { unsigned version; unsigned sensor; int value; };
int nvmlInitWithFlags(unsigned) { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* s, unsigned n) { snprintf(s, n, "580.1.2"); return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** d) {
  *d = &stream;
  return strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") ? 6 : 0;
}
int nvmlDeviceGetClockInfo(void* d, int type, unsigned* mhz) { *mhz = 1755; return d == &stream && type == 1 ? 0 : 2; }
int nvmlDeviceGetTemperatureV(void* d, Temperature* t) { t->value = 41; return d == &stream && t->sensor == 0 ? 0 : 2; }
}
