// What the recorder needs beyond the runtime API: implemented over NVIDIA's driver and over the
// runtime that runs kernels on this machine's processor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "cudaops_capture/launch.h"
#undef cudaDeviceReset
#undef cudaThreadExit
#undef cudaStreamBeginCapture
#undef cudaStreamEndCapture

namespace cudaops_capture {

// An allocation; size 0: none that is known.
struct Range {
  uintptr_t begin;
  size_t size;
};

// The allocation that an address lies in, or just behind the end of which it lies.
Range allocation_of(uintptr_t address);

// Why a kernel may reach an address that lies in no allocation; null: it may not.
const char* reachable_elsewhere(uintptr_t address);

// Whether launches into the stream are recorded into a graph instead of run.
bool is_capturing(cudaStream_t stream);

// Whether nothing more can run in this process after the error.
bool is_lost(cudaError_t error);

cudaError_t reset_runtime();

// Before the current context is destroyed.
void leave_context();

// The program launches something that is not recorded: it does not pause.
void stirred();

// Into the report as it is.
void note(const std::string& lines);

// While it lives, the calling thread may synchronise and copy whatever graph capture the program has
// going, and a failure of such a call is not left for the program to find.
class OwnCalls {
 public:
  OwnCalls();
  ~OwnCalls();
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;
  // The program has an error to find: a call that may fail would replace it.
  bool crowded() const { return found_ != cudaSuccess; }

 private:
  cudaError_t found_;
  int mode_;
};

}  // namespace cudaops_capture
