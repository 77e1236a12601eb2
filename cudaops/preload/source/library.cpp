// A library for LD_PRELOAD: where a program launches the author's kernel, the rewrite's are
// launched instead, if the plan of `winner.h` holds. Programs reach libcuda.so.1 by dlsym, by what
// its cuGetProcAddress gives them, or by being linked with it: all three meet a wrapper here, and
// everything else passes through untouched. docs/preload.md.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "rewrite.h"
#include "winner.h"

#define CUDAOPS_EXPORTED __attribute__((visibility("default")))

namespace cudaops {

void* wrapper(Wrapped which);

namespace {

using Dlsym = void*(void*, const char*);

constexpr const char* WRAPPED_NAMES[WRAPPED_COUNT] = {
    "cuGetProcAddress", "cuGetProcAddress_v2", "cuLaunchKernel",
    "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz",
};

enum Mode { ON, OFF, REPORT };

Mode mode() {
    static std::atomic<int> known{-1};
    int found = known.load(std::memory_order_relaxed);
    if (found < 0) {
        const char* given = getenv("CUDAOPS_PRELOAD");
        found = given == nullptr ? ON : strcmp(given, "0") == 0 ? OFF
                : strcmp(given, "report") == 0 ? REPORT : ON;
        known.store(found, std::memory_order_relaxed);
    }
    return static_cast<Mode>(found);
}

// ---- the driver's own functions

pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
Driver driver_functions;
std::atomic<Driver*> known_driver{nullptr};

extern "C" {
__attribute__((visibility("hidden"))) Dlsym* cudaops_real_dlsym = nullptr;
}

void* no_dlsym(void*, const char*) { return nullptr; }

Dlsym* real_dlsym() {
    if (cudaops_real_dlsym == nullptr) {
        void* found = nullptr;
        // The newest of both, then the oldest of x86-64 and of aarch64.
        const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
        for (const char* version : versions)
            if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", version);
        cudaops_real_dlsym = found != nullptr ? reinterpret_cast<Dlsym*>(found) : no_dlsym;
    }
    return cudaops_real_dlsym;
}

template <class F>
void resolve(F& function, void* handle, const char* name) {
    function = reinterpret_cast<F>(real_dlsym()(handle, name));
}

Driver resolved(void* handle) {
    Driver found;
#define CUDAOPS_RESOLVE(name, parameters) resolve(found.name, handle, #name);
    CUDAOPS_DRIVER_CALLS(CUDAOPS_RESOLVE)
    CUDAOPS_OPTIONAL_CALLS(CUDAOPS_RESOLVE)
#undef CUDAOPS_RESOLVE
    for (int i = 0; i < WRAPPED_COUNT; ++i)
        found.original[i] = real_dlsym()(handle, WRAPPED_NAMES[i]);
    return found;
}

// Null as long as the program has not loaded libcuda.so.1. Never loads it itself.
Driver* driver() {
    Driver* known = known_driver.load(std::memory_order_acquire);
    if (known != nullptr) return known;
    void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
        (void)dlerror();  // it is ours
        return nullptr;
    }
    // Outside of our lock: a thread with the dynamic linker's may be on its way to ours.
    const Driver found = resolved(handle);
    pthread_mutex_lock(&driver_lock);
    if (known_driver.load(std::memory_order_relaxed) == nullptr) {
        driver_functions = found;
        known_driver.store(&driver_functions, std::memory_order_release);
    }
    pthread_mutex_unlock(&driver_lock);
    return &driver_functions;
}

template <class F>
F* original(Wrapped which) {
    Driver* found = driver();
    return found == nullptr ? nullptr : reinterpret_cast<F*>(found->original[which]);
}

// ---- which kernel a handle is

constexpr size_t FOREIGN_SLOTS = 8192, PROBES = 16;
std::atomic<Function*> foreign[FOREIGN_SLOTS];
// Handles of kernels that are none of ours. One that is given to another kernel after its module
// was unloaded costs the rewrite, never a wrong result: what is ours is asked for at every launch.

std::atomic<Function*>& foreign_slot(Function* function, size_t probe) {
    const auto bits = reinterpret_cast<size_t>(function);
    const size_t hash = (bits >> 4) * 0x9E3779B97F4A7C15ULL >> 40;
    return foreign[(hash + probe) % FOREIGN_SLOTS];
}

bool is_foreign(Function* function) {
    for (size_t probe = 0; probe < PROBES; ++probe) {
        Function* found = foreign_slot(function, probe).load(std::memory_order_relaxed);
        if (found == function) return true;
        if (found == nullptr) return false;
    }
    return false;
}

void remember_foreign(Function* function) {
    for (size_t probe = 0; probe < PROBES; ++probe) {
        Function* expected = nullptr;
        std::atomic<Function*>& slot = foreign_slot(function, probe);
        if (slot.compare_exchange_strong(expected, function) || expected == function) return;
    }
}

// Past the name of an anonymous namespace (`36_GLOBAL__N__...`), in which nvcc writes the name of
// the file that it compiled; else past nothing.
const char* past_file_name(const char* text) {
    const char* end = text;
    size_t length = 0;
    while (*end >= '0' && *end <= '9') length = length * 10 + static_cast<size_t>(*end++ - '0');
    const bool is_one = end != text && strncmp(end, "_GLOBAL__N_", 11) == 0;
    return is_one && strnlen(end, length) == length ? end + length : text;
}

bool same_name(const char* a, const char* b) {
    for (;; ++a, ++b) {
        const char *after_a = past_file_name(a), *after_b = past_file_name(b);
        if (after_a != a && after_b != b) a = after_a, b = after_b;
        if (*a != *b) return false;
        if (*a == '\0') return true;
    }
}

Served* served_by(const Driver& driver, Function* function) {
    if (is_foreign(function)) return nullptr;
    const char* name = nullptr;
    const auto kernel = reinterpret_cast<Kernel*>(function);
    if (driver.cuFuncGetName(&name, function) != SUCCESS &&
        driver.cuKernelGetName(&name, kernel) != SUCCESS)
        return nullptr;
    for (Served& one : SERVED)
        if (name != nullptr && same_name(name, one.symbol)) return &one;
    remember_foreign(function);
    return nullptr;
}

// ---- whether the rewrite may stand for a launch

std::atomic<int> capabilities[KEPT_DEVICES];  // 10 * major + minor; 0: not asked yet

int capability(const Driver& driver, Device device) {
    const bool kept = device >= 0 && device < static_cast<int>(KEPT_DEVICES);
    int found = kept ? capabilities[device].load(std::memory_order_relaxed) : 0;
    if (found != 0) return found;
    int major = 0, minor = 0;
    if (driver.cuDeviceGetAttribute(&major, COMPUTE_CAPABILITY_MAJOR, device) != SUCCESS ||
        driver.cuDeviceGetAttribute(&minor, COMPUTE_CAPABILITY_MINOR, device) != SUCCESS)
        return 0;
    found = 10 * major + minor;
    if (kept) capabilities[device].store(found, std::memory_order_relaxed);
    return found;
}

// Source: CUDA C++ Programming Guide, binary compatibility: a cubin for X.y runs on X.z, z >= y;
// one of an architecture-specific target on X.y alone.
bool runs_on(const Driver& driver, const Image& image) {
    Device device = 0;
    if (driver.cuCtxGetDevice(&device) != SUCCESS) return false;
    const int found = capability(driver, device);
    const int built = 10 * image.major + image.minor;
    return image.exact ? found == built : found / 10 == image.major && found >= built;
}

// A mangled name tells the parameters' types. One with C linkage does not: any library of the
// process may have another kernel of that name.
bool same_parameters(const Driver& driver, const Served& served, Function* function) {
    if (strncmp(served.symbol, "_Z", 2) == 0 || driver.cuFuncGetParamInfo == nullptr ||
        driver.cuKernelGetParamInfo == nullptr)
        return true;
    const auto kernel = reinterpret_cast<Kernel*>(function);
    for (unsigned i = 0; i <= served.parameter_count; ++i) {
        size_t offset = 0, size = 0;
        const bool there = driver.cuFuncGetParamInfo(function, i, &offset, &size) == SUCCESS ||
                           driver.cuKernelGetParamInfo(kernel, i, &offset, &size) == SUCCESS;
        if (there != (i < served.parameter_count)) return false;
        const Parameter& one = served.parameters[i];
        if (there && (offset != one.offset || size != one.size)) return false;
    }
    return true;
}

// Where each of the author's arguments stands; false where they cannot be found.
bool find_arguments(const Served& served, const Launch& launch, const void** given) {
    if (launch.parameters != nullptr) {
        for (unsigned i = 0; i < served.parameter_count; ++i) given[i] = launch.parameters[i];
        return true;
    }
    const char* buffer = nullptr;
    const size_t* size = nullptr;
    void** extra = launch.extra;
    for (; extra != nullptr && extra[0] != nullptr; extra += 2) {
        const auto key = reinterpret_cast<size_t>(extra[0]);
        if (key == 1) buffer = static_cast<const char*>(extra[1]);
        else if (key == 2) size = static_cast<const size_t*>(extra[1]);
        else return false;
    }
    for (unsigned i = 0; i < served.parameter_count; ++i) {
        const Parameter& one = served.parameters[i];
        if (buffer == nullptr || size == nullptr || one.offset + one.size > *size) return false;
        given[i] = buffer + one.offset;
    }
    return true;
}

// Null where the rewrite may be tried.
const char* objection(const Driver& driver, const Served& served, const Launch& launch) {
    int capturing = 0;
    if (driver.cuStreamIsCapturing(launch.our_stream(), &capturing) != SUCCESS || capturing != 0)
        return "the stream is captured into a graph";
    if (!runs_on(driver, served.image)) return "the device is not what the cubin was built for";
    if (!same_parameters(driver, served, launch.function))
        return "it is another kernel of the same name, with other parameters";
    return nullptr;
}

void count_author(Served& served, const char* why) {
    const char* none = nullptr;
    served.reason.compare_exchange_strong(none, why);
    served.by_author.fetch_add(1, std::memory_order_relaxed);
}

// Whether the rewrite was launched, with what the driver said of it.
bool replaced(const Launch& launch, const char* special, Result* result) {
    Driver* found = mode() == OFF ? nullptr : driver();
    if (found == nullptr || found->lacks() != nullptr) return false;
    Served* served = served_by(*found, launch.function);
    if (served == nullptr) return false;
    const void* given[MOST_PARAMETERS];
    const char* why = special != nullptr ? special : objection(*found, *served, launch);
    if (why == nullptr && !find_arguments(*served, launch, given))
        why = "its arguments were not given in a way that is known";
    if (why == nullptr) {
        Run run(*found, launch, *served);
        undefined_value = false;
        if (served->plan(run, given)) {
            *result = run.result();
            served->by_rewrite.fetch_add(1, std::memory_order_relaxed);
            return true;
        }
        why = run.why();
    }
    count_author(*served, why);
    return false;
}

// An attribute that asks for something: the rewrite was not judged with it. Null where none does.
const char* special_attribute(const LaunchConfig& config) {
    for (unsigned i = 0; i < config.attribute_count; ++i) {
        const LaunchAttribute& one = config.attributes[i];
        const unsigned* extent = one.value.extent;
        switch (one.id) {
            case 0:  // ignored
                break;
            case 2:  // cooperative
            case 6:  // programmatic stream serialization
                if (one.value.number != 0) return "it is launched with attributes";
                break;
            case 4:  // cluster dimension
                if (extent[0] > 1 || extent[1] > 1 || extent[2] > 1)
                    return "it is launched with attributes";
                break;
            default:
                return "it is launched with attributes";
        }
    }
    return nullptr;
}

Result launch_kernel(Wrapped which, const Launch& launch) {
    const auto author = original<LaunchKernel>(which);
    if (author == nullptr) return NOT_INITIALIZED;
    Result result = SUCCESS;
    if (replaced(launch, nullptr, &result)) return result;
    return author(launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                  launch.block[1], launch.block[2], launch.smem, launch.stream, launch.parameters,
                  launch.extra);
}

Result launch_kernel_ex(Wrapped which, const LaunchConfig* config, Function* function,
                        void** parameters, void** extra) {
    const auto author = original<LaunchKernelEx>(which);
    if (author == nullptr) return NOT_INITIALIZED;
    Result result = SUCCESS;
    if (config != nullptr) {
        const Launch launch{function,     config->grid,   config->block, config->smem,
                            config->stream, parameters, extra, which == LAUNCH_KERNEL_EX_PTSZ};
        if (replaced(launch, special_attribute(*config), &result)) return result;
    }
    return author(config, function, parameters, extra);
}

// ---- what programs are handed

Wrapped wrapped_named(const char* name) {
    for (int i = 0; i < WRAPPED_COUNT; ++i)
        if (strcmp(name, WRAPPED_NAMES[i]) == 0) return static_cast<Wrapped>(i);
    return NOT_WRAPPED;
}

// The wrapper of what cuGetProcAddress found. Source: CUDA Driver API, driver entry point access:
// names are without version, and the flags choose the variant with the thread's own stream.
void wrap_found(const char* symbol, void** function, int version, unsigned long long flags) {
    if (symbol == nullptr || function == nullptr || *function == nullptr || mode() == OFF) return;
    Wrapped which = wrapped_named(symbol);
    if (which == NOT_WRAPPED) return;
    const bool per_thread = (flags & PER_THREAD_DEFAULT_STREAM) != 0;
    if (which == GET_PROC_ADDRESS && version >= 12000) which = GET_PROC_ADDRESS_V2;
    if (which == LAUNCH_KERNEL && per_thread) which = LAUNCH_KERNEL_PTSZ;
    if (which == LAUNCH_KERNEL_EX && per_thread) which = LAUNCH_KERNEL_EX_PTSZ;
    Driver* found = driver();
    // A driver that does not export this variant has nothing that a wrapper could call.
    if (found != nullptr && found->original[which] != nullptr) *function = wrapper(which);
}

// ---- counts

// Text that is written as far as it fits, and counted beyond, as by snprintf.
struct Written {
    char* text;
    size_t size;
    size_t length = 0;

    void put(char one) {
        if (length + 1 < size) text[length] = one;
        ++length;
    }
    void add(const char* raw) {
        for (; *raw != '\0'; ++raw) put(*raw);
    }
    void add_quoted(const char* raw) {
        put('"');
        for (; *raw != '\0'; ++raw) {
            if (*raw == '"' || *raw == '\\') put('\\');
            put(*raw);
        }
        put('"');
    }
    void end() {
        if (size > 0) text[length < size ? length : size - 1] = '\0';
    }
};

void report() {
    Driver* found = known_driver.load(std::memory_order_acquire);
    if (found == nullptr) return;  // a program without CUDA, such as a shell around it
    const char* lacks = found->lacks();
    if (lacks != nullptr)
        fprintf(stderr, "cudaops: the driver has no %s: nothing was replaced\n", lacks);
    for (Served& one : SERVED) {
        const char* reason = one.reason.load();
        fprintf(stderr, "cudaops: %s: %llu launches by the rewrite, %llu by the author's kernel",
                one.shown, one.by_rewrite.load(), one.by_author.load());
        fprintf(stderr, reason == nullptr ? "\n" : " (first: %s)\n", reason);
    }
}

__attribute__((destructor)) void report_at_exit() {
    if (mode() == REPORT) report();
}

}  // namespace
}  // namespace cudaops

using namespace cudaops;

extern "C" {

// The wrapper that a program gets for a name of libcuda's; null: what the real dlsym says.
__attribute__((visibility("hidden"), used)) void* cudaops_find_wrapper(void* handle,
                                                                       const char* name) {
    Dlsym* const find = real_dlsym();
    if (name == nullptr || name[0] != 'c' || name[1] != 'u' || mode() == OFF) return nullptr;
    const Wrapped which = wrapped_named(name);
    if (which == NOT_WRAPPED) return nullptr;
    Driver* const found = driver();
    if (found == nullptr || found->original[which] == nullptr) return nullptr;
    if (handle == RTLD_NEXT) return wrapper(which);
    void* const there = find(handle, name);
    const bool is_drivers = there == found->original[which] || there == wrapper(which);
    return is_drivers ? wrapper(which) : nullptr;
}

CUDAOPS_EXPORTED Result cuGetProcAddress(const char* symbol, void** function, int version,
                                         unsigned long long flags) {
    const auto author = original<GetProcAddress>(GET_PROC_ADDRESS);
    if (author == nullptr) return NOT_INITIALIZED;
    const Result result = author(symbol, function, version, flags);
    if (result == SUCCESS) wrap_found(symbol, function, version, flags);
    return result;
}

CUDAOPS_EXPORTED Result cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                            unsigned long long flags, int* status) {
    const auto author = original<GetProcAddressV2>(GET_PROC_ADDRESS_V2);
    if (author == nullptr) return NOT_INITIALIZED;
    const Result result = author(symbol, function, version, flags, status);
    if (result == SUCCESS) wrap_found(symbol, function, version, flags);
    return result;
}

#define CUDAOPS_LAUNCH(name, which)                                                             \
    CUDAOPS_EXPORTED Result name(Function* function, unsigned gx, unsigned gy, unsigned gz,     \
                                 unsigned bx, unsigned by, unsigned bz, unsigned smem,          \
                                 Stream* stream, void** parameters, void** extra) {             \
        const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};                         \
        return launch_kernel(which, {function, grid, block, smem, stream, parameters, extra,    \
                                     which == LAUNCH_KERNEL_PTSZ});                             \
    }
CUDAOPS_LAUNCH(cuLaunchKernel, LAUNCH_KERNEL)
CUDAOPS_LAUNCH(cuLaunchKernel_ptsz, LAUNCH_KERNEL_PTSZ)

CUDAOPS_EXPORTED Result cuLaunchKernelEx(const LaunchConfig* config, Function* function,
                                         void** parameters, void** extra) {
    return launch_kernel_ex(LAUNCH_KERNEL_EX, config, function, parameters, extra);
}

CUDAOPS_EXPORTED Result cuLaunchKernelEx_ptsz(const LaunchConfig* config, Function* function,
                                              void** parameters, void** extra) {
    return launch_kernel_ex(LAUNCH_KERNEL_EX_PTSZ, config, function, parameters, extra);
}

// Writes a JSON array, one object a kernel, ending in a null byte, as far as it fits; how many
// bytes it takes in all without that byte, as snprintf does. `text` may be null where `size` is 0.
CUDAOPS_EXPORTED size_t cudaops_preload_counts(char* text, size_t size) {
    Written out{text, size};
    const char* before = "[{\"kernel\": ";
    for (Served& one : SERVED) {
        char numbers[96];
        snprintf(numbers, sizeof numbers, ", \"rewrite\": %llu, \"author\": %llu, \"reason\": ",
                 one.by_rewrite.load(), one.by_author.load());
        out.add(before);
        out.add_quoted(one.shown);
        out.add(numbers);
        const char* const reason = one.reason.load();
        if (reason == nullptr) out.add("null");
        else out.add_quoted(reason);
        before = "}, {\"kernel\": ";
    }
    out.add("}]");
    out.end();
    return out.length;
}

}  // extern "C"

void* cudaops::wrapper(Wrapped which) {
    switch (which) {
        case GET_PROC_ADDRESS: return reinterpret_cast<void*>(&cuGetProcAddress);
        case GET_PROC_ADDRESS_V2: return reinterpret_cast<void*>(&cuGetProcAddress_v2);
        case LAUNCH_KERNEL: return reinterpret_cast<void*>(&cuLaunchKernel);
        case LAUNCH_KERNEL_PTSZ: return reinterpret_cast<void*>(&cuLaunchKernel_ptsz);
        case LAUNCH_KERNEL_EX: return reinterpret_cast<void*>(&cuLaunchKernelEx);
        case LAUNCH_KERNEL_EX_PTSZ: return reinterpret_cast<void*>(&cuLaunchKernelEx_ptsz);
        default: return nullptr;
    }
}

// dlsym itself. The real one looks at who called it (RTLD_NEXT), so it is jumped to with the
// caller's return address still in its place, which no compiler promises for a call.
#if defined(__x86_64__)
asm(R"(
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call cudaops_find_wrapper
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    je 1f
    ret
1:  jmpq *cudaops_real_dlsym(%rip)
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    hint 34
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp x0, x1, [sp, #16]
    bl cudaops_find_wrapper
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    cbz x16, 1f
    mov x0, x16
    ret
1:  adrp x16, cudaops_real_dlsym
    ldr x16, [x16, #:lo12:cudaops_real_dlsym]
    br x16
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#else
#error "the library knows x86-64 and aarch64"
#endif
