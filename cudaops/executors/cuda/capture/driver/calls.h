// What the recorder calls of the driver, and what it wraps to see a program's clock, graphs and
// contexts. Source: CUDA Driver API 13.0, cuda.h.
#pragma once
#include <cstddef>

namespace cudaops {
struct Context;
struct Event;
}  // namespace cudaops

#define CUDAOPS_MORE_CALLS(CALL)                                                  \
  CALL(cuEventCreate, (Event**, unsigned))                                        \
  CALL(cuEventDestroy_v2, (Event*))                                               \
  CALL(cuEventElapsedTime, (float*, Event*, Event*))                              \
  CALL(cuEventQuery, (Event*))                                                    \
  CALL(cuEventRecord, (Event*, Stream*))                                          \
  CALL(cuEventSynchronize, (Event*))                                              \
  CALL(cuGetErrorName, (Result, const char**))                                    \
  CALL(cuGetErrorString, (Result, const char**))                                  \
  CALL(cuMemGetAddressRange_v2, (Address*, size_t*, Address))                     \
  CALL(cuMemHostAlloc, (void**, size_t, unsigned))                                \
  CALL(cuMemcpy, (Address, Address, size_t))                                      \
  CALL(cuMemcpyAsync, (Address, Address, size_t, Stream*))                        \
  CALL(cuPointerGetAttribute, (void*, int, Address))                              \
  CALL(cuStreamCreate, (Stream**, unsigned))

#define CUDAOPS_OBSERVED(CALL)                                                                       \
  CALL(EVENT_RECORD, cuEventRecord, "cuEventRecord", false, (Event*, Stream*))                       \
  CALL(EVENT_RECORD_PTSZ, cuEventRecord_ptsz, "cuEventRecord", true, (Event*, Stream*))              \
  CALL(BEGIN_CAPTURE, cuStreamBeginCapture_v2, "cuStreamBeginCapture", false, (Stream*, int))        \
  CALL(BEGIN_CAPTURE_PTSZ, cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", true, (Stream*, int)) \
  CALL(END_CAPTURE, cuStreamEndCapture, "cuStreamEndCapture", false, (Stream*, void**))              \
  CALL(END_CAPTURE_PTSZ, cuStreamEndCapture_ptsz, "cuStreamEndCapture", true, (Stream*, void**))     \
  CALL(CONTEXT_DESTROY, cuCtxDestroy_v2, "cuCtxDestroy", false, (Context*))                          \
  CALL(CONTEXT_DETACH, cuCtxDetach, "cuCtxDetach", false, (Context*))                                \
  CALL(PRIMARY_RELEASE, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", false, (Device))  \
  CALL(PRIMARY_RESET, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", false, (Device))

#include "driver.h"
