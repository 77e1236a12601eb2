// The double's memory, events and kernels that run. Allocations are this process's own; a launch of a
// kernel that the library in CUDA_DOUBLE_KERNELS has is carried out by its function of the same name:
//
//   extern "C" void SYMBOL(void** values, const unsigned* grid, const unsigned* block);
//
// of one that it has not by `any_kernel`, where it has that, which is told the symbol first.
//
// Included by fake_cuda.cpp.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

struct CUevent_st {
    CUcontext context;
    double seconds;  // 0: not recorded
};

namespace {

std::mutex memory_lock;
std::map<CUdeviceptr, size_t> allocations;

bool allocation_of(CUdeviceptr address, CUdeviceptr* begin, size_t* bytes) {
    std::lock_guard<std::mutex> held(memory_lock);
    auto found = allocations.upper_bound(address);
    if (found == allocations.begin()) return false;
    --found;
    if (address - found->first >= found->second) return false;
    *begin = found->first;
    *bytes = found->second;
    return true;
}

double now_s() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run_kernel(const char* symbol, void** values, const unsigned* grid, const unsigned* block) {
    static void* const library = [] {
        const char* path = getenv("CUDA_DOUBLE_KERNELS");
        return path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
    }();
    using Kernel = void(void**, const unsigned*, const unsigned*);
    const auto kernel = library == nullptr ? nullptr : reinterpret_cast<Kernel*>(dlsym(library, symbol));
    if (kernel != nullptr) return kernel(values, grid, block);
    using AnyKernel = void(const char*, void**, const unsigned*, const unsigned*);
    const auto any = library == nullptr ? nullptr : reinterpret_cast<AnyKernel*>(dlsym(library, "any_kernel"));
    if (any != nullptr) any(symbol, values, grid, block);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t bytes) {
    *address = reinterpret_cast<CUdeviceptr>(calloc(1, bytes));
    std::lock_guard<std::mutex> held(memory_lock);
    allocations[*address] = bytes;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    std::lock_guard<std::mutex> held(memory_lock);
    if (allocations.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
    free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    *memory = malloc(bytes);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
    return allocation_of(address, begin, bytes) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                       CUdeviceptr address) {
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    if (!allocation_of(address, &begin, &bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) memcpy(data, &begin, sizeof begin);
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) memcpy(data, &bytes, sizeof bytes);
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    return cuMemcpy(to, from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
    memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned) {
    CUcontext context = nullptr;
    cuCtxGetCurrent(&context);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *event = new CUevent_st{context, 0};
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventDestroy(CUevent event) {
    delete event;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream) {
    event->seconds = now_s();
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventQuery(CUevent) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent start, CUevent stop) {
    if (start->seconds == 0 || stop->seconds == 0) return CUDA_ERROR_INVALID_HANDLE;
    *ms = static_cast<float>(1e3 * (stop->seconds - start->seconds));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult, const char** text) {
    *text = "CUDA_ERROR_OF_THE_DOUBLE";
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
    *text = "an error of the double";
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    const std::vector<char> image(std::istreambuf_iterator<char>(file), {});
    return cuModuleLoadData(module, image.data());
}
}
