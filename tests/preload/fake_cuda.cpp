// A double of libcuda.so.1 for tests where there is no GPU. It reads real cubins as the driver does
// (kernels, parameters, variables), keeps memory in this process, and writes each launch to the
// file that FAKE_CUDA_LOG names, one JSON object a line, instead of running it. It is compiled with
// NVIDIA's own cuda.h, which holds its signatures. It is no whole driver: NVIDIA's runtime gets as
// far as to ask cuGetProcAddress for its functions (launches among them are written to the file as
// well), and says then that it cannot be initialised.
//
//   CUDA_DOUBLE_CAPABILITY=86      compute capability of its two devices (90)
//   FAKE_CUDA_FAIL=NAME          this function fails; `NAME:SYMBOL` where it is about that kernel
//   FAKE_CUDA_THREADS=64         most threads that a block of any kernel may have (1024)
//
// Compiled with -DOLD it is a driver before CUDA 12.3, which tells no kernel's name.
#define CUDA_ENABLE_DEPRECATED
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#undef cuGetProcAddress

#include "fake_memory.h"

namespace {

struct Parameter {
    size_t offset, size;
};

struct Code {  // what stands in a cubin
    std::map<std::string, std::vector<Parameter>> kernels;
    std::map<std::string, size_t> variables;
};

enum Kind { FUNCTION = 0xF, KERNEL = 0xC };

}  // namespace

struct CUctx_st {
    CUdevice device;
    bool destroyed = false;
};
struct CUstream_st {
    bool capturing;
};
struct CUmod_st {
    Code code;
    std::map<std::string, std::vector<char>> variables;
};
struct CUlib_st {
    CUmod_st in_all_contexts;
};
struct CUfunc_st {
    Kind kind;
    std::string name;
    CUmod_st* module;
    int dynamic_shared;
};
struct CUkern_st {  // begins as a function does: programs hand one over in its place
    Kind kind;
    std::string name;
    CUlib_st* library;
    std::map<CUctx_st*, CUfunc_st*> functions;
};

namespace {

std::mutex lock;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
bool captures = false;  // any stream is captured

// What a thread must not do then, unless it has said that it means another stream.
bool forbidden() { return captures && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED; }
thread_local CUctx_st* current = nullptr;
constexpr int MOST_SHARED_WITHOUT_OPT_IN = 48 * 1024, MOST_SHARED = 227 * 1024;

bool fails(const char* name, const std::string& symbol = "") {
    const char* given = getenv("FAKE_CUDA_FAIL");
    if (given == nullptr) return false;
    return given == std::string(name) || (!symbol.empty() && given == name + (":" + symbol));
}

void log(const std::string& line) {
    const char* path = getenv("FAKE_CUDA_LOG");
    if (path == nullptr) return;
    std::lock_guard<std::mutex> held(lock);
    FILE* file = fopen(path, "a");
    if (file == nullptr) return;
    fprintf(file, "%s\n", line.c_str());
    fclose(file);
}

std::string text(const char* format, ...) {
    char line[512];
    va_list rest;
    va_start(rest, format);
    vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    return line;
}

std::vector<Parameter> parameters_of(const char* at, const char* end) {
    std::map<unsigned, Parameter> found;
    while (at < end) {
        const unsigned char form = at[0], attribute = at[1];
        unsigned short size;
        memcpy(&size, at + 2, 2);
        at += 4;
        if (form != 4) continue;
        if (attribute == 0x17) {
            unsigned short ordinal, offset;
            unsigned flags;
            memcpy(&ordinal, at + 4, 2);
            memcpy(&offset, at + 6, 2);
            memcpy(&flags, at + 8, 4);
            found[ordinal] = {offset, flags >> 18};
        }
        at += size;
    }
    std::vector<Parameter> listed;
    for (const auto& one : found) listed.push_back(one.second);
    return listed;
}

bool read_image(const void* image, Code* code) {
    const char* data = static_cast<const char*>(image);
    if (memcmp(data, ELFMAG, SELFMAG) != 0) return false;
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(data);
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(data + header->e_shoff);
    const char* names = data + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; ++i) {
        const std::string name = names + sections[i].sh_name;
        const char* at = data + sections[i].sh_offset;
        if (name.rfind(".nv.info.", 0) == 0)
            code->kernels[name.substr(9)] = parameters_of(at, at + sections[i].sh_size);
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const char* strings = data + sections[sections[i].sh_link].sh_offset;
        const auto* symbols = reinterpret_cast<const Elf64_Sym*>(at);
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; ++k)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_OBJECT && symbols[k].st_shndx != 0)
                code->variables[strings + symbols[k].st_name] = symbols[k].st_size;
    }
    return true;
}

CUresult global_of(CUmod_st* module, const char* name, CUdeviceptr* address, size_t* bytes) {
    const auto found = module->code.variables.find(name);
    if (found == module->code.variables.end()) return CUDA_ERROR_NOT_FOUND;
    std::vector<char>& memory = module->variables[name];
    memory.resize(found->second);
    *address = reinterpret_cast<CUdeviceptr>(memory.data());
    *bytes = found->second;
    return CUDA_SUCCESS;
}

std::string hex(const void* bytes, size_t size) {
    std::string out;
    for (size_t i = 0; i < size; ++i)
        out += text("%02x", static_cast<const unsigned char*>(bytes)[i]);
    return out;
}

std::vector<void*> given_values(const std::vector<Parameter>& wanted, void** parameters,
                                void** extra) {
    char* buffer = nullptr;
    for (; parameters == nullptr && extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<char*>(extra[1]);
    std::vector<void*> found;
    for (size_t i = 0; i < wanted.size(); ++i)
        found.push_back(parameters != nullptr ? parameters[i] : buffer + wanted[i].offset);
    return found;
}

std::string given(const std::vector<Parameter>& wanted, void** parameters, void** extra) {
    const std::vector<void*> values = given_values(wanted, parameters, extra);
    std::string out;
    for (size_t i = 0; i < wanted.size(); ++i)
        out += (i == 0 ? "\"" : ", \"") + hex(values[i], wanted[i].size) + "\"";
    return out;
}

CUresult launched(const char* by, CUfunction function, const unsigned (&grid)[3],
                  const unsigned (&block)[3], unsigned smem, CUstream stream, void** parameters,
                  void** extra) {
    const std::string& name = function->name;
    const auto* kernel = reinterpret_cast<CUkern_st*>(function);
    const bool is_kernel = function->kind == KERNEL;
    CUmod_st* module = is_kernel ? &kernel->library->in_all_contexts : function->module;
    const int allowed = is_kernel ? MOST_SHARED_WITHOUT_OPT_IN : function->dynamic_shared;
    if (fails("cuLaunchKernel", name) || static_cast<int>(smem) > allowed ||
        block[0] * block[1] * block[2] > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    log(text("{\"launch\": \"%s\", \"by\": \"%s\", \"grid\": [%u, %u, %u], ", name.c_str(), by,
             grid[0], grid[1], grid[2]) +
        text("\"block\": [%u, %u, %u], \"smem\": %u, \"stream\": %zu, \"context\": %zu, ", block[0],
             block[1], block[2], smem, reinterpret_cast<size_t>(stream),
             reinterpret_cast<size_t>(current)) +
        "\"parameters\": [" + given(module->code.kernels[name], parameters, extra) + "]}");
    std::vector<void*> values = given_values(module->code.kernels[name], parameters, extra);
    run_kernel(name.c_str(), values.data(), grid, block);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    const char* set = getenv("CUDA_DOUBLE_CAPABILITY");
    const int capability = set == nullptr ? 90 : atoi(set);
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = capability / 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = capability % 10;
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
    *context = current = new CUctx_st{device, false};
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    if (context != nullptr && context->destroyed) {
        fprintf(stderr, "a context that was destroyed is made current\n");
        abort();  // as NVIDIA's driver may: what stood there was freed (580.159.04)
    }
    current = context;
    return CUDA_SUCCESS;
}
// What NVRTC asks for when it is loaded (seen with 13.4); it does without.
CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    static CUctx_st primary[2] = {{0, false}, {1, false}};
    *context = &primary[device];
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSynchronize() {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
    if (current == context) current = nullptr;
    context->destroyed = true;
    return CUDA_SUCCESS;  // never freed: handles stay apart
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
    auto* made = new CUmod_st;
    if (!read_image(image, &made->code)) return CUDA_ERROR_INVALID_IMAGE;
    *module = made;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    if (module->code.kernels.count(name) == 0) return CUDA_ERROR_NOT_FOUND;
    *function = new CUfunc_st{FUNCTION, name, module, MOST_SHARED_WITHOUT_OPT_IN};
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                   const char* name) {
    return global_of(module, name, address, bytes);
}
CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                                   unsigned, CUlibraryOption*, void**, unsigned) {
    if (forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto* made = new CUlib_st;
    if (fails("cuLibraryLoadData") || !read_image(image, &made->in_all_contexts.code))
        return CUDA_ERROR_INVALID_IMAGE;
    log("{\"loaded\": \"library\"}");
    *library = made;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    if (library->in_all_contexts.code.kernels.count(name) == 0) return CUDA_ERROR_NOT_FOUND;
    *kernel = new CUkern_st{KERNEL, name, library, {}};
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                                    const char* name) {
    return global_of(&library->in_all_contexts, name, address, bytes);
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    if (forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (fails("cuKernelGetFunction")) return CUDA_ERROR_INVALID_CONTEXT;
    std::lock_guard<std::mutex> held(lock);
    CUfunc_st*& found = kernel->functions[current];
    if (found == nullptr)
        found = new CUfunc_st{FUNCTION, kernel->name, &kernel->library->in_all_contexts,
                              MOST_SHARED_WITHOUT_OPT_IN};
    *function = found;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
    *library = kernel->library;
    return CUDA_SUCCESS;
}
#ifndef OLD
CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel kernel) {
    if (kernel->kind != KERNEL) return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel->name.c_str();
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
    if (function->kind != FUNCTION) return CUDA_ERROR_INVALID_HANDLE;
    *name = function->name.c_str();
    return CUDA_SUCCESS;
}
#endif
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
    if (function->kind != FUNCTION) return CUDA_ERROR_INVALID_HANDLE;
    *module = function->module;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                    size_t* size) {
    if (function->kind != FUNCTION) return CUDA_ERROR_INVALID_HANDLE;
    const std::vector<Parameter>& known = function->module->code.kernels[function->name];
    if (index >= known.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = known[index].offset;
    *size = known[index].size;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t, size_t*, size_t*) {
    return kernel->kind != KERNEL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
}
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                    CUfunction function) {
    const char* most = getenv("FAKE_CUDA_THREADS");
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        *value = most == nullptr ? 1024 : atoi(most);
    else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        *value = function->dynamic_shared;
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                    int value) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > MOST_SHARED)
        return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared = value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
    if (forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (fails("cuMemAllocAsync")) return CUDA_ERROR_OUT_OF_MEMORY;
    void* memory = malloc(bytes);
    *address = reinterpret_cast<CUdeviceptr>(memory);
    log(text("{\"allocated\": %zu, \"bytes\": %zu, \"stream\": %zu}", *address, bytes,
             reinterpret_cast<size_t>(stream)));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream) {
    if (forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    log(text("{\"freed\": %zu}", address));
    free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
    memcpy(reinterpret_cast<void*>(to), from, bytes);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    const void* source = reinterpret_cast<const void*>(from);
    log("{\"copied\": \"" + hex(source, bytes) + "\"}");
    memcpy(reinterpret_cast<void*>(to), source, bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned) {
    *stream = new CUstream_st{false};
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
    stream->capturing = captures = true;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    stream->capturing = captures = false;
    *graph = nullptr;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    const bool made_here = reinterpret_cast<size_t>(stream) > 2;
    *status = made_here && stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                             : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    const CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

#define LAUNCH(name)                                                                            \
    CUresult CUDAAPI name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
                          unsigned by, unsigned bz, unsigned smem, CUstream stream,             \
                          void** parameters, void** extra) {                                    \
        return launched(#name, f, {gx, gy, gz}, {bx, by, bz}, smem, stream, parameters, extra); \
    }                                                                                           \
    CUresult CUDAAPI name##_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz,           \
                                 unsigned bx, unsigned by, unsigned bz, unsigned smem,          \
                                 CUstream stream, void** parameters, void** extra) {            \
        return launched(#name "_ptsz", f, {gx, gy, gz}, {bx, by, bz}, smem, stream, parameters, \
                        extra);                                                                 \
    }
LAUNCH(cuLaunchKernel)

#define LAUNCH_EX(name)                                                                         \
    CUresult CUDAAPI name(const CUlaunchConfig* c, CUfunction f, void** parameters,             \
                          void** extra) {                                                       \
        return launched(#name, f, {c->gridDimX, c->gridDimY, c->gridDimZ},                      \
                        {c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes,          \
                        c->hStream, parameters, extra);                                         \
    }
LAUNCH_EX(cuLaunchKernelEx)
LAUNCH_EX(cuLaunchKernelEx_ptsz)

// Names are without version; the newest is given. The flags choose the variant.
CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
    const std::string name = symbol;
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    Dl_info self;
    dladdr(reinterpret_cast<void*>(&cuInit), &self);
    void* here = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = nullptr;
    if (name.rfind("cuLaunchKernel", 0) == 0)
        log(text("{\"asked\": \"%s\", \"flags\": %llu}", symbol,
                 static_cast<unsigned long long>(flags)));
    std::vector<std::string> variants;
    if (per_thread) variants.push_back(name + "_ptsz");
    if (name != "cuGetProcAddress" || version >= 12000) {
        variants.push_back(name + "_v4");
        variants.push_back(name + "_v2");
    }
    variants.push_back(name);
    for (const std::string& one : variants)
        if (*function == nullptr) *function = dlsym(here, one.c_str());
    if (status != nullptr)
        *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                  cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"
