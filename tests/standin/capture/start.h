// How a launch is started where kernels run on this machine's processor.
#pragma once
#include <cudaops/launch.h>
#include <cudaops/runtime_api.h>

namespace cudaops {
void set_error(cudaError_t error);
}

namespace cudaops_capture {

template <class... P, class T>
void run_launch(const ::cudaops::Launch& launch, void (*function)(P...), T& arguments) {
  std::apply([&](auto&... each) { launch.of(function).start(each...); }, arguments);
}
template <class F, class T>
void run_launch(const ::cudaops::Launch& launch, F& function, T& arguments) {
  std::apply(launch.deduced(function), arguments);
}

template <class F, class T>
cudaError_t start_launch(const Call& call, F& function, T& arguments) {
  const Geometry& g = call.geometry;
  cudaError_t before = cudaGetLastError();
  run_launch(::cudaops::launch(call.site, call.kernel, g.grid, g.block, g.shared_bytes, g.stream), function,
             arguments);
  cudaError_t after = cudaPeekAtLastError();
  if (after == cudaSuccess) ::cudaops::set_error(before);
  return after;
}

}  // namespace cudaops_capture

#define CUDAOPS_CAPTURE_RUNTIME_VARIABLE(text, expression) CUDAOPS_GLOBAL(text, expression);
