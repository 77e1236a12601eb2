// How a launch is started by NVIDIA's runtime.
#pragma once
#include "clock_reads.h"

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

namespace cudaops {
CUDAOPS_ELEMENT(::__half, "f16")
CUDAOPS_ELEMENT(::__half2, "f16")
CUDAOPS_ELEMENT(::__nv_bfloat16, "bf16")
CUDAOPS_ELEMENT(::__nv_bfloat162, "bf16")
#if CUDART_VERSION >= 13000
CUDAOPS_ELEMENT(::double4_16a, "f64")
CUDAOPS_ELEMENT(::double4_32a, "f64")
CUDAOPS_ELEMENT(::long4_16a, "i64")
CUDAOPS_ELEMENT(::long4_32a, "i64")
CUDAOPS_ELEMENT(::ulong4_16a, "u64")
CUDAOPS_ELEMENT(::ulong4_32a, "u64")
CUDAOPS_ELEMENT(::longlong4_16a, "i64")
CUDAOPS_ELEMENT(::longlong4_32a, "i64")
CUDAOPS_ELEMENT(::ulonglong4_16a, "u64")
CUDAOPS_ELEMENT(::ulonglong4_32a, "u64")
#endif
}  // namespace cudaops

namespace cudaops_capture {

// A kernel by its address: the call that `<<<>>>` compiles to or its author wrote, which also tells its own error.
template <class... P, class T>
cudaError_t start_launch(const Call& call, void (*)(P...), T&) {
  const Geometry& g = call.geometry;
#if CUDART_VERSION >= 11080
  if (call.configuration)
    return cudaLaunchKernelExC(static_cast<const cudaLaunchConfig_t*>(call.configuration), call.function, call.values);
#endif
  if (call.is_together)
    return cudaLaunchCooperativeKernel(call.function, g.grid, g.block, call.values, g.shared_bytes, g.stream);
  return cudaLaunchKernel(call.function, g.grid, g.block, call.values, g.shared_bytes, g.stream);
}

// A kernel that the compiler chooses by the arguments: `function` holds the author's `<<<>>>`.
template <class F, class T>
cudaError_t start_launch(const Call& call, F& function, T& arguments) {
  cudaError_t before = cudaPeekAtLastError();
  std::apply([&](auto&... each) { function(call.geometry, each...); }, arguments);
  cudaError_t after = cudaPeekAtLastError();
  return after == before ? cudaSuccess : after;
}

}  // namespace cudaops_capture

static inline cudaError_t cudaops_capture_graph(cudaStream_t stream, cudaStreamCaptureMode mode) {
  cudaError_t error = cudaStreamBeginCapture(stream, mode);
  if (error == cudaSuccess) ::cudaops_capture::graph_begins();
  return error;
}
static inline cudaError_t cudaops_capture_graph_end(cudaStream_t stream, cudaGraph_t* graph) {
  cudaError_t error = cudaStreamEndCapture(stream, graph);
  ::cudaops_capture::graph_ends();
  return error;
}
// Readings of a clock, which say what the program times.
static inline cudaError_t cudaops_capture_event_record(cudaEvent_t event, cudaStream_t stream = 0) {
  ::cudaops::clock_read(::cudaops::Clock::Event);
  return cudaEventRecord(event, stream);
}
static inline int cudaops_capture_clock_gettime(clockid_t id, timespec* t) {
  ::cudaops::clock_read(::cudaops::Clock::Host);
  return clock_gettime(id, t);
}
static inline int cudaops_capture_gettimeofday(timeval* t, void* zone) {
  ::cudaops::clock_read(::cudaops::Clock::Host);
  return gettimeofday(t, static_cast<struct timezone*>(zone));
}
#define cudaEventRecord cudaops_capture_event_record
#define clock_gettime cudaops_capture_clock_gettime
#define gettimeofday cudaops_capture_gettimeofday
#undef cudaStreamBeginCapture
#undef cudaStreamEndCapture
#define cudaStreamBeginCapture cudaops_capture_graph
#define cudaStreamEndCapture cudaops_capture_graph_end

#include "graphs.h"

#define CUDAOPS_CAPTURE_RUNTIME_VARIABLE(text, expression)
