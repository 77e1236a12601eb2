// The runtime that runs kernels on this machine's processor: its own list of allocations.
#pragma once
#include "device.h"
#include "clock_reads.h"
#include "machine.h"

namespace cudaops {
bool any_registered();
}

namespace cudaops_capture {

Range allocation_of(uintptr_t address) {
  const ::cudaops::Allocation* found = ::cudaops::allocation_around(address);
  return found ? Range{found->begin, found->size} : Range{0, 0};
}

const char* reachable_elsewhere(uintptr_t) {
  return ::cudaops::any_registered() ? "registered host memory" : nullptr;
}

bool is_capturing(cudaStream_t) { return false; }
bool is_lost(cudaError_t error) { return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure; }
cudaError_t reset_runtime() { return cudaDeviceReset(); }

// The runtime counts readings of events, the recorder's too: these are none of the program's.
static thread_local unsigned long event_reads = 0;

OwnCalls::OwnCalls() : found_(cudaPeekAtLastError()), mode_(0) {
  event_reads = ::cudaops::clock_reads[(int)::cudaops::Clock::Event];
}
OwnCalls::~OwnCalls() {
  ::cudaops::clock_reads[(int)::cudaops::Clock::Event] = event_reads;
  if (found_ == cudaSuccess) cudaGetLastError();
}

}  // namespace cudaops_capture
