// What the rerouted `kernel<<<grid, block, smem, stream>>>(args)` of a recorded program calls. Little
// is included here: it stands before the author's text and must not change what his names mean.
#pragma once
#include <cstddef>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "runtime.h"

#include "argument_types.h"
#include "named_kernels.h"

namespace cudaops_capture {

struct Geometry {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// A `__constant__` or `__device__` variable whose contents are part of a launch's state.
struct Variable {
  const char* name;
  cudaError_t (*locate)(void** address);
  size_t size;
  Variable* next;
  void* place;  // not null: where it is, of one that is in no list of the program's
  Variable(const char* name, cudaError_t (*locate)(void**), size_t size);
  Variable(const char* name, void* place, size_t size, Variable* next)
      : name(name), locate(nullptr), size(size), next(next), place(place) {}
};

// One launch with its types erased. `values[i]` points at the i-th argument.
struct Call {
  int site;
  const char* kernel;
  Geometry geometry;
  bool is_together;      // its blocks wait for each other
  const void* configuration;  // not null: its cudaLaunchConfig_t, which says all of that
  const char* limit;     // not null: why such a launch cannot be captured
  const void* function;  // null where template arguments are deduced
  const char* within;    // then the mangled type of a closure that stands in the launching function
  cudaError_t (*start)(const Call& call);  // launches; the program's own error state sees the result
  void* closure;
  int count;
  const cudaops::ArgumentType* types;
  void** values;
  const Variable* variables;  // of the module that the kernel is in; null: the program's own
};

// Launches `call`, recording what the environment asks for.
void submit(const Call& call);

// Between the two some stream records a graph: the device must not be waited for.
void graph_begins();
void graph_ends();

// cudaDeviceReset, after the times that it would destroy were read.
cudaError_t reset_device();

}  // namespace cudaops_capture

#include "start.h"

namespace cudaops_capture {

template <class F, class... P>
struct Closure {
  F function;
  std::tuple<cudaops::KeptFor<F, P>...> arguments;

  static cudaError_t start(const Call& call) {
    auto* closure = static_cast<Closure*>(call.closure);
    return start_launch(call, closure->function, closure->arguments);
  }

  template <size_t... I>
  void submit_with(Call call, std::index_sequence<I...>) {
    static constexpr cudaops::ArgumentType types[] = {cudaops::describe<cudaops::handed<P>>()..., cudaops::ArgumentType{}};
    void* addresses[] = {(void*)&std::get<I>(arguments)..., nullptr};
    void* values[] = {std::is_reference<P>::value ? (void*)&addresses[I] : addresses[I]..., nullptr};
    call.start = &start;
    call.closure = this;
    call.count = sizeof...(P);
    call.types = types;
    call.values = values;
    submit(call);
  }
};

template <class... P>
struct Bound {
  Call call;
  void (*function)(P...);
  void operator()(P... arguments) const { start(cudaops::Kept<P>(std::forward<P>(arguments))...); }
  void start(cudaops::Kept<P>... arguments) const {
    Closure<void (*)(P...), P...> closure{function, {std::forward<cudaops::Kept<P>>(arguments)...}};
    closure.submit_with(call, std::index_sequence_for<P...>());
  }
};

template <class F>
struct Deduced {
  Call call;
  F function;
  template <class... A>
  void operator()(A&&... arguments) const {
    Closure<F, std::decay_t<A>...> closure{function, {std::forward<A>(arguments)...}};
    closure.submit_with(call, std::index_sequence_for<A...>());
  }
};

struct Launch {
  Call call;
  template <class... P>
  Bound<P...> of(void (*function)(P...)) const {
    Bound<P...> bound{call, function};
    bound.call.function = (const void*)function;
    bound.call.kernel = cudaops::NamedKernel::name_of(bound.call.function, call.kernel);
    return bound;
  }
  template <class F>
  Deduced<F> deduced(F function) const {
    Deduced<F> deduced{call, function};
    deduced.call.within = typeid(F).name();
    return deduced;
  }
};

inline Launch launch(int site, const char* kernel, dim3 grid, dim3 block, size_t shared_bytes = 0,
                     cudaStream_t stream = nullptr) {
  Launch result{};
  result.call.site = site;
  result.call.kernel = kernel;
  result.call.geometry = Geometry{grid, block, shared_bytes, stream};
  return result;
}

// A launch by the kernel's address. `make`: the launch, of the kernel's name; `unseen`: what is called where
// nothing is known by that address.
template <class Make, class Unseen>
cudaError_t start_packed(const void* function, void** arguments, Make make, Unseen unseen) {
  const cudaops::NamedKernel* kernel = cudaops::NamedKernel::find(function);
  if (!kernel) return unseen();
  Launch made = make(kernel->name);
  kernel->start(&made, kernel->address, arguments);
  return cudaPeekAtLastError();
}
// cudaLaunchKernel.
template <class T>
cudaError_t launch_packed(int site, T* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0,
                          cudaStream_t stream = nullptr) {
  auto* address = (const void*)function;
  return start_packed(
      address, arguments, [&](const char* kernel) { return launch(site, kernel, grid, block, shared_bytes, stream); },
      [&] { return cudaLaunchKernel(address, grid, block, arguments, shared_bytes, stream); });
}
// cudaLaunchCooperativeKernel.
template <class T>
cudaError_t launch_packed_together(int site, T* function, dim3 grid, dim3 block, void** arguments,
                                   size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  auto* address = (const void*)function;
  auto make = [&](const char* kernel) {
    Launch made = launch(site, kernel, grid, block, shared_bytes, stream);
    made.call.is_together = true;
    return made;
  };
  return start_packed(address, arguments, make, [&] {
    return cudaLaunchCooperativeKernel(address, grid, block, arguments, shared_bytes, stream);
  });
}
// By a cudaLaunchConfig_t, which is a template's parameter here: older toolkits have none.
template <class Config>
Launch configured(int site, const char* kernel, const Config& config) {
  Launch made = launch(site, kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream);
  made.call.configuration = &config;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    auto& one = config.attrs[i];
    auto& size = one.val.clusterDim;
    constexpr int cluster_dimension = 4;  // cudaLaunchAttributeClusterDimension
    if ((int)one.id == cluster_dimension && size.x * size.y * size.z > 1)
      made.call.limit = cudaops::clusters_by_attribute;
  }
  return made;
}
// cudaLaunchKernelExC.
template <class Config, class T>
cudaError_t launch_configured_packed(int site, const Config* config, T* function, void** arguments) {
  auto* address = (const void*)function;
  return start_packed(
      address, arguments, [&](const char* kernel) { return configured(site, kernel, *config); },
      [&] { return cudaLaunchKernelExC(config, address, arguments); });
}
// cudaLaunchKernelEx, with the kernel's name as it is written.
template <class Config, class... P, class... A>
cudaError_t launch_configured(int site, const char* written, const Config* config, void (*kernel)(P...),
                              A&&... arguments) {
  configured(site, written, *config).of(kernel)(std::forward<A>(arguments)...);
  return cudaPeekAtLastError();
}

}  // namespace cudaops_capture

#define CUDAOPS_CAPTURE_JOIN_(a, b) a##b
#define CUDAOPS_CAPTURE_JOIN(a, b) CUDAOPS_CAPTURE_JOIN_(a, b)
#define CUDAOPS_CAPTURE_VARIABLE(text, expression)                                               \
  CUDAOPS_CAPTURE_RUNTIME_VARIABLE(text, expression)                                             \
  static ::cudaops_capture::Variable CUDAOPS_CAPTURE_JOIN(cudaops_capture_, __COUNTER__)(        \
      text, [](void** address) { return cudaGetSymbolAddress(address, expression); }, sizeof(expression))

static inline cudaError_t cudaops_capture_reset() { return ::cudaops_capture::reset_device(); }
#define cudaDeviceReset cudaops_capture_reset
#define cudaThreadExit cudaops_capture_reset
#undef CUDAOPS_LAUNCH
#define CUDAOPS_LAUNCH ::cudaops_capture::Launch
