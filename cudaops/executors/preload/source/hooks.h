// Stands before the places where a program gets at libcuda.so.1: dlsym, what its cuGetProcAddress
// gives, and being linked with it. What is launched meets a function of whoever includes this, and
// everything else passes through untouched.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include <atomic>

#include "driver.h"

#define CUDAOPS_EXPORTED __attribute__((visibility("default")))

namespace cudaops {

// ---- of whoever includes this

bool is_off();  // programs are handed the driver's own functions
Result launch_kernel(Wrapped which, const Launch& launch);
Result launch_kernel_ex(Wrapped which, const LaunchConfig* config, Function* function,
                        void** parameters, void** extra);
#define CUDAOPS_DECLARE(id, name, base, per_thread, parameters) \
    extern "C" CUDAOPS_EXPORTED Result name parameters;
CUDAOPS_OBSERVED(CUDAOPS_DECLARE)
#undef CUDAOPS_DECLARE

void* wrapper(Wrapped which);

namespace {

using Dlsym = void*(void*, const char*);

constexpr const char* WRAPPED_NAMES[WRAPPED_COUNT] = {
    "cuGetProcAddress", "cuGetProcAddress_v2", "cuLaunchKernel",
    "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz",
#define CUDAOPS_NAME(id, name, base, per_thread, parameters) #name,
    CUDAOPS_OBSERVED(CUDAOPS_NAME)
#undef CUDAOPS_NAME
};

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
    CUDAOPS_MORE_CALLS(CUDAOPS_RESOLVE)
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

// ---- what programs are handed

Wrapped wrapped_named(const char* name) {
    for (int i = 0; i < WRAPPED_COUNT; ++i)
        if (strcmp(name, WRAPPED_NAMES[i]) == 0) return static_cast<Wrapped>(i);
    return NOT_WRAPPED;
}

// The wrapper of what cuGetProcAddress found. Source: CUDA Driver API, driver entry point access:
// names are without version, and the flags choose the variant with the thread's own stream.
void wrap_found(const char* symbol, void** function, int version, unsigned long long flags) {
    if (symbol == nullptr || function == nullptr || *function == nullptr || is_off()) return;
    const bool per_thread = (flags & PER_THREAD_DEFAULT_STREAM) != 0;
    Wrapped which = wrapped_named(symbol);
#define CUDAOPS_CHOOSE(id, name, base, own_stream, parameters) \
    if (strcmp(symbol, base) == 0 && own_stream == per_thread) which = id;
    CUDAOPS_OBSERVED(CUDAOPS_CHOOSE)
#undef CUDAOPS_CHOOSE
    if (which == NOT_WRAPPED) return;
    if (which == GET_PROC_ADDRESS && version >= 12000) which = GET_PROC_ADDRESS_V2;
    if (which == LAUNCH_KERNEL && per_thread) which = LAUNCH_KERNEL_PTSZ;
    if (which == LAUNCH_KERNEL_EX && per_thread) which = LAUNCH_KERNEL_EX_PTSZ;
    Driver* found = driver();
    // A driver that does not export this variant has nothing that a wrapper could call.
    if (found != nullptr && found->original[which] != nullptr) *function = wrapper(which);
}

}  // namespace
}  // namespace cudaops

using namespace cudaops;

extern "C" {

// The wrapper that a program gets for a name of libcuda's; null: what the real dlsym says.
__attribute__((visibility("hidden"), used)) void* cudaops_find_wrapper(void* handle,
                                                                       const char* name) {
    Dlsym* const find = real_dlsym();
    if (name == nullptr || name[0] != 'c' || name[1] != 'u' || is_off()) return nullptr;
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

}  // extern "C"

void* cudaops::wrapper(Wrapped which) {
    switch (which) {
        case GET_PROC_ADDRESS: return reinterpret_cast<void*>(&cuGetProcAddress);
        case GET_PROC_ADDRESS_V2: return reinterpret_cast<void*>(&cuGetProcAddress_v2);
        case LAUNCH_KERNEL: return reinterpret_cast<void*>(&cuLaunchKernel);
        case LAUNCH_KERNEL_PTSZ: return reinterpret_cast<void*>(&cuLaunchKernel_ptsz);
        case LAUNCH_KERNEL_EX: return reinterpret_cast<void*>(&cuLaunchKernelEx);
        case LAUNCH_KERNEL_EX_PTSZ: return reinterpret_cast<void*>(&cuLaunchKernelEx_ptsz);
#define CUDAOPS_CASE(id, name, base, per_thread, parameters) \
    case id: return reinterpret_cast<void*>(&name);
            CUDAOPS_OBSERVED(CUDAOPS_CASE)
#undef CUDAOPS_CASE
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
