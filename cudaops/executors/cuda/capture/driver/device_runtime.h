// The driver that the program opened, in whatever context its launch is made.
#pragma once
#include <mutex>
#include <vector>

#include "device.h"
#include "lost.h"

static thread_local cudaops::Context* own_context = nullptr;
// By number, and the last that a launch was made in.
static std::mutex contexts_lock;
static std::vector<cudaops::Context*> contexts;
static cudaops::Context* latest_context = nullptr;

cudaError_t cudaGetDevice(int* device) {
  cudaops::Context* current = nullptr;
  cudaError_t error = cudaops_capture::the_driver().cuCtxGetCurrent(&current);
  if (error != cudaSuccess || !current) return error ? error : cudaErrorInvalidValue;
  std::lock_guard<std::mutex> hold(contexts_lock);
  size_t k = 0;
  while (k < contexts.size() && contexts[k] != current) ++k;
  if (k == contexts.size()) contexts.push_back(current);
  *device = (int)k;
  latest_context = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  std::lock_guard<std::mutex> hold(contexts_lock);
  if (device < 0 || (size_t)device >= contexts.size() || !contexts[(size_t)device]) return cudaErrorInvalidValue;
  return cudaops_capture::the_driver().cuCtxSetCurrent(contexts[(size_t)device]);
}

namespace cudaops_capture {

void forget_context(cudaops::Context* gone) {
  std::lock_guard<std::mutex> hold(contexts_lock);
  for (cudaops::Context*& one : contexts)
    if (one == gone) one = nullptr;
  if (latest_context == gone) latest_context = nullptr;
}

constexpr int MEMORY_TYPE = 2, RANGE_START = 11, RANGE_SIZE = 12, PAGEABLE_MEMORY_ACCESS = 88;
// Source: CUpointer_attribute and CUdevice_attribute in cuda.h.

static bool holds(const Range& range, uintptr_t address) {
  return range.size && address >= range.begin && address - range.begin < range.size;
}

// As device_runtime.h of NVIDIA's runtime: of two answers the smaller is meant.
static Range lookup(uintptr_t address) {
  const cudaops::Driver& driver = the_driver();
  Range best{0, 0};
  cudaops::Address begin = 0;
  size_t size = 0;
  if (driver.cuMemGetAddressRange_v2(&begin, &size, address) == cudaSuccess) {
    Range range{(uintptr_t)begin, size};
    if (holds(range, address)) best = range;
  }
  begin = 0, size = 0;
  if (driver.cuPointerGetAttribute(&begin, RANGE_START, address) == cudaSuccess &&
      driver.cuPointerGetAttribute(&size, RANGE_SIZE, address) == cudaSuccess) {
    Range range{(uintptr_t)begin, size};
    if (holds(range, address) && (!best.size || range.size < best.size)) best = range;
  }
  return best;
}

Range allocation_of(uintptr_t address) {
  Range range = lookup(address);
  return range.size ? range : lookup(address - 1);
}

const char* reachable_elsewhere(uintptr_t address) {
  const cudaops::Driver& driver = the_driver();
  unsigned type = 0;
  if (driver.cuPointerGetAttribute(&type, MEMORY_TYPE, address) == cudaSuccess)
    return "memory whose extent the driver does not tell";
  cudaops::Device device = 0;
  int pageable = 0;
  if (driver.cuCtxGetDevice(&device) == cudaSuccess)
    driver.cuDeviceGetAttribute(&pageable, PAGEABLE_MEMORY_ACCESS, device);
  return pageable ? "ordinary host memory" : nullptr;
}

bool is_capturing(cudaStream_t stream) {
  constexpr cudaError_t implicit = 906;  // the null stream, while another one captures
  int status = 0;
  cudaError_t error = the_driver().cuStreamIsCapturing(stream, &status);
  return error == implicit || (error == cudaSuccess && status != 0);
}

bool is_lost(cudaError_t error) { return ends_process(error); }
cudaError_t reset_runtime() { return cudaSuccess; }

// A thread that is in no context, such as the one that ends the program, enters the last one that a
// launch was made in.
OwnCalls::OwnCalls() : found_(cudaSuccess), mode_(cudaops::CAPTURE_MODE_RELAXED) {
  cudaops::Context* current = nullptr;
  if (the_driver().cuCtxGetCurrent(&current) == cudaSuccess && !current) {
    std::lock_guard<std::mutex> hold(contexts_lock);
    own_context = latest_context;
  }
  if (own_context) the_driver().cuCtxSetCurrent(own_context);
  the_driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

OwnCalls::~OwnCalls() {
  the_driver().cuThreadExchangeStreamCaptureMode(&mode_);
  if (own_context) the_driver().cuCtxSetCurrent(nullptr);
  own_context = nullptr;
}

}  // namespace cudaops_capture
