// The part of CUDA's driver API that the library needs, so that no CUDA header is.
// Source: CUDA Driver API 13.0, cuda.h; the names are those that libcuda.so.1 exports.
#pragma once

#include <stddef.h>

namespace cudaops {

using Result = int;
using Device = int;
using Address = unsigned long long;
struct Context;
struct Function;  // CUfunction points to one; a CUkernel may be handed over in its place
struct Kernel;
struct Module;
struct Library;
struct Stream;

constexpr Result SUCCESS = 0;
constexpr Result NOT_INITIALIZED = 3;
constexpr int COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76;
constexpr int MAX_THREADS_PER_BLOCK = 0, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
constexpr int CAPTURE_MODE_RELAXED = 2;
constexpr unsigned long long PER_THREAD_DEFAULT_STREAM = 2;  // flag of cuGetProcAddress

inline Stream* per_thread_stream() { return reinterpret_cast<Stream*>(2); }

struct LaunchAttribute {
    int id;
    int padding;
    union {
        char bytes[64];
        int number;
        unsigned extent[3];
    } value;
};

struct LaunchConfig {
    unsigned grid[3], block[3], smem;
    Stream* stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};

// One launch that a program asks for.
struct Launch {
    Function* function;
    const unsigned* grid;
    const unsigned* block;
    unsigned smem;
    Stream* stream;
    void** parameters;
    void** extra;
    bool per_thread;  // a null stream means the thread's own

    Stream* our_stream() const {
        return stream == nullptr && per_thread ? per_thread_stream() : stream;
    }
};

using LaunchKernel = Result(Function*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, Stream*, void**, void**);
using LaunchKernelEx = Result(const LaunchConfig*, Function*, void**, void**);
using GetProcAddress = Result(const char*, void**, int, unsigned long long);
using GetProcAddressV2 = Result(const char*, void**, int, unsigned long long, int*);

// What the library calls itself: name, result, parameters.
#define CUDAOPS_DRIVER_CALLS(CALL)                                                       \
    CALL(cuCtxGetCurrent, (Context**))                                                   \
    CALL(cuCtxGetDevice, (Device*))                                                      \
    CALL(cuCtxSetCurrent, (Context*))                                                    \
    CALL(cuCtxSynchronize, ())                                                           \
    CALL(cuDeviceGetAttribute, (int*, int, Device))                                      \
    CALL(cuFuncGetAttribute, (int*, int, Function*))                                     \
    CALL(cuFuncSetAttribute, (Function*, int, int))                                      \
    CALL(cuFuncGetModule, (Module**, Function*))                                         \
    CALL(cuFuncGetName, (const char**, Function*))                                       \
    CALL(cuKernelGetFunction, (Function**, Kernel*))                                     \
    CALL(cuKernelGetLibrary, (Library**, Kernel*))                                       \
    CALL(cuKernelGetName, (const char**, Kernel*))                                       \
    CALL(cuLibraryGetGlobal, (Address*, size_t*, Library*, const char*))                 \
    CALL(cuLibraryGetKernel, (Kernel**, Library*, const char*))                          \
    CALL(cuLibraryLoadData,                                                              \
         (Library**, const void*, void*, void**, unsigned, void*, void**, unsigned))     \
    CALL(cuMemAllocAsync, (Address*, size_t, Stream*))                                   \
    CALL(cuMemFreeAsync, (Address, Stream*))                                             \
    CALL(cuMemcpyDtoDAsync_v2, (Address, Address, size_t, Stream*))                      \
    CALL(cuModuleGetGlobal_v2, (Address*, size_t*, Module*, const char*))                \
    CALL(cuStreamIsCapturing, (Stream*, int*))                                           \
    CALL(cuThreadExchangeStreamCaptureMode, (int*))

// What it calls where the driver has it (CUDA 12.4).
#define CUDAOPS_OPTIONAL_CALLS(CALL)                                 \
    CALL(cuFuncGetParamInfo, (Function*, size_t, size_t*, size_t*))  \
    CALL(cuKernelGetParamInfo, (Kernel*, size_t, size_t*, size_t*))

// What whoever includes this calls beside, and what programs get further wrappers for: identifier,
// exported name, name without version, whether for the thread's own stream, parameters.
#ifndef CUDAOPS_MORE_CALLS
#define CUDAOPS_MORE_CALLS(CALL)
#define CUDAOPS_OBSERVED(CALL)
#endif

// What programs get a wrapper for.
enum Wrapped {
    GET_PROC_ADDRESS,
    GET_PROC_ADDRESS_V2,
    LAUNCH_KERNEL,
    LAUNCH_KERNEL_PTSZ,
    LAUNCH_KERNEL_EX,
    LAUNCH_KERNEL_EX_PTSZ,
#define CUDAOPS_ENUMERATE(id, name, base, per_thread, parameters) id,
    CUDAOPS_OBSERVED(CUDAOPS_ENUMERATE)
#undef CUDAOPS_ENUMERATE
    WRAPPED_COUNT,
    NOT_WRAPPED = -1,
};

struct Driver {
#define CUDAOPS_MEMBER(name, parameters) Result(*name) parameters;
    CUDAOPS_DRIVER_CALLS(CUDAOPS_MEMBER)
    CUDAOPS_MORE_CALLS(CUDAOPS_MEMBER)
    CUDAOPS_OPTIONAL_CALLS(CUDAOPS_MEMBER)
#undef CUDAOPS_MEMBER
    void* original[WRAPPED_COUNT];  // the driver's own function of each wrapper; null: it has none

    // Null where the driver is older than CUDA 12.3, which gave kernels their names back.
    const char* lacks() const {
#define CUDAOPS_CHECK(name, parameters) \
    if (name == nullptr) return #name;
        CUDAOPS_DRIVER_CALLS(CUDAOPS_CHECK)
        CUDAOPS_MORE_CALLS(CUDAOPS_CHECK)
#undef CUDAOPS_CHECK
        return original[LAUNCH_KERNEL] == nullptr ? "cuLaunchKernel" : nullptr;
    }
};

}  // namespace cudaops
