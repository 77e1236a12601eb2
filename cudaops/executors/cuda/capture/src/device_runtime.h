// NVIDIA's driver, asked through the runtime: nothing is linked to libcuda.
#pragma once
#define CUDAOPS_CHRONO_WRAPPERS
#include "clock_reads.h"
#include <cuda.h>

#include "device.h"
#include "lost.h"

namespace cudaops_capture {

template <class F>
static F driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
#if CUDART_VERSION >= 12050
  constexpr unsigned version = 12000;  // newer than what is asked for, older than any driver here
  cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status);
#elif CUDART_VERSION >= 12000
  cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#else
  status = cudaDriverEntryPointSuccess;
  cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
  return status == cudaDriverEntryPointSuccess ? reinterpret_cast<F>(found) : nullptr;
}

using GetAddressRange = CUresult (*)(CUdeviceptr* base, size_t* size, CUdeviceptr pointer);
using GetAttributes = CUresult (*)(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer);

static bool holds(const Range& range, uintptr_t address) {
  return range.size && address >= range.begin && address - range.begin < range.size;
}

// cuMemGetAddressRange tells cudaMalloc'ed memory and the mapped part of a reservation, the pointer's
// attributes managed and host memory too but a whole reservation: of two answers the smaller is meant.
static Range lookup(uintptr_t address) {
  static const auto address_range = driver_function<GetAddressRange>("cuMemGetAddressRange");
  static const auto attributes_of = driver_function<GetAttributes>("cuPointerGetAttributes");
  Range best{0, 0};
  CUdeviceptr begin = 0;
  size_t size = 0;
  if (address_range && address_range(&begin, &size, (CUdeviceptr)address) == CUDA_SUCCESS) {
    Range range{(uintptr_t)begin, size};
    if (holds(range, address)) best = range;
  }
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  begin = 0, size = 0;
  void* data[] = {&begin, &size};
  if (attributes_of && attributes_of(2, wanted, data, (CUdeviceptr)address) == CUDA_SUCCESS) {
    Range range{(uintptr_t)begin, size};
    if (holds(range, address) && (!best.size || range.size < best.size)) best = range;
  }
  return best;
}

Range allocation_of(uintptr_t address) {
  static thread_local bool has_context = (cudaFree(nullptr), true);
  (void)has_context;
  Range range = lookup(address);
  return range.size ? range : lookup(address - 1);
}

const char* reachable_elsewhere(uintptr_t address) {
  cudaPointerAttributes known{};
  if (cudaPointerGetAttributes(&known, (const void*)address) == cudaSuccess && known.type != cudaMemoryTypeUnregistered)
    return "memory whose extent the driver does not tell";
  int device = 0, pageable = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, device);
  return pageable ? "ordinary host memory" : nullptr;
}

// The null stream cannot be asked while another stream captures: that launch is the graph's trouble.
bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &status);
  return error == cudaErrorStreamCaptureImplicit || (error == cudaSuccess && status != cudaStreamCaptureStatusNone);
}

bool is_lost(cudaError_t error) { return ends_process((int)error); }

cudaError_t reset_runtime() { return cudaDeviceReset(); }

OwnCalls::OwnCalls() : found_(cudaPeekAtLastError()), mode_(cudaStreamCaptureModeRelaxed) {
  auto mode = cudaStreamCaptureModeRelaxed;
  if (cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess) mode_ = mode;
}

OwnCalls::~OwnCalls() {
  auto mode = (cudaStreamCaptureMode)mode_;
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (found_ == cudaSuccess) cudaGetLastError();
}

}  // namespace cudaops_capture
