// The part of the CUDA runtime that the recorder asks, over the driver that the program opened. A
// "device" is a context here, by the number that it was given when it was first seen.
#pragma once
#include <vector_types.h>

#include "calls.h"

using cudaError_t = int;  // the driver's numbers are the runtime's, where both have the error
using cudaStream_t = cudaops::Stream*;
using cudaEvent_t = cudaops::Event*;

constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotReady = 600,
                      cudaErrorIllegalAddress = 700, cudaErrorLaunchTimeout = 702;
constexpr int cudaMemcpyDefault = 4, cudaHostAllocDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1;

namespace cudaops_capture {
const cudaops::Driver& the_driver();
inline cudaops::Address address(const void* pointer) { return reinterpret_cast<cudaops::Address>(pointer); }
}  // namespace cudaops_capture

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
// Named by launch.h for text that launches, and there is none of it here: nothing defines them.
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream);
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream);
cudaError_t cudaPeekAtLastError();

inline cudaError_t cudaDeviceSynchronize() { return cudaops_capture::the_driver().cuCtxSynchronize(); }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaops_capture::the_driver().cuEventCreate(event, 0); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return cudaops_capture::the_driver().cuEventCreate(event, flags);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return cudaops_capture::the_driver().cuEventDestroy_v2(event); }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  return cudaops_capture::the_driver().cuEventElapsedTime(ms, start, stop);
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaops_capture::the_driver().cuEventQuery(event); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaops_capture::the_driver().cuEventRecord(event, stream);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return cudaops_capture::the_driver().cuEventSynchronize(event);
}
inline cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return cudaops_capture::the_driver().cuMemHostAlloc(memory, bytes, flags);
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  return cudaops_capture::the_driver().cuMemcpy(cudaops_capture::address(to), cudaops_capture::address(from), bytes);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, cudaStream_t stream) {
  return cudaops_capture::the_driver().cuMemcpyAsync(cudaops_capture::address(to), cudaops_capture::address(from), bytes,
                                                     stream);
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaops_capture::the_driver().cuStreamCreate(stream, flags);
}
inline const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  return cudaops_capture::the_driver().cuGetErrorString(error, &text) == cudaSuccess && text ? text : "unknown error";
}
inline const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  return cudaops_capture::the_driver().cuGetErrorName(error, &text) == cudaSuccess && text ? text : "CUDA_ERROR_UNKNOWN";
}
