// A kernel launch as a value: what the rerouted `kernel<<<grid, block, smem, stream>>>(args)` calls.
#pragma once
#include "macros_off.h"
#include <cstddef>
#include <cstring>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "vector_types.h"

#include "argument_types.h"
#include "named_kernels.h"

typedef struct CUstream_st* cudaStream_t;

namespace cudaops {

// One launch with its types erased. `values[i]` points at the i-th argument.
struct Call {
  int site;
  const char* kernel;
  dim3 grid, block, cluster;  // blocks of a cluster, 1 in every axis where there is none
  bool is_together;           // its blocks wait for each other; `cluster` is the grid then
  size_t shared_bytes;
  void (*invoke)(void* closure);
  void* closure;
  void* (*copy)(const void* closure);  // that lasts, for a graph
  void (*submit_copy)(void* closure, const Call& call);
  void (*assign)(void* closure, void* const* values);  // other arguments, for a graph's node
  const void* function;  // null where template arguments are deduced
  const char* within;    // then the mangled type of a closure that stands in the launching function
  const char* limit;     // not null: why such a launch cannot be captured
  int count;
  const ArgumentType* types;
  void* const* values;
};

void submit(const Call& call);

// How a thread calls a kernel: what C++ hands over by its address is a copy of its bytes, the thread's own.
template <class P>
using Handed = std::conditional_t<is_handed_by_address<P>, P&, P>;
template <class... P>
auto as_called(void (*function)(P...)) {
  if constexpr ((is_handed_by_address<P> || ...))
    return reinterpret_cast<void (*)(Handed<P>...)>(function);
  else
    return function;
}
template <class F>
F& as_called(F& function) { return function; }
template <class P>
BytesOf<P> own_copy(const BytesOf<P>& kept) { return kept; }
template <class P>
P& own_copy(P& kept) { return kept; }

template <class F, class... P>
struct Closure {
  F function;
  std::tuple<KeptFor<F, P>...> arguments;

  static void invoke(void* self) { static_cast<Closure*>(self)->call_each(std::index_sequence_for<P...>()); }
  template <size_t... I>
  void call_each(std::index_sequence<I...>) {
    as_called(function)(own_copy(std::get<I>(arguments))...);
  }

  static void* copy(const void* self) { return new Closure(*static_cast<const Closure*>(self)); }
  static void submit_copy(void* self, const Call& call) {
    static_cast<Closure*>(self)->submit_with(call, std::index_sequence_for<P...>());
  }

  static void assign(void* self, void* const* values) {
    static_cast<Closure*>(self)->assign_each(values, std::index_sequence_for<P...>());
  }
  template <size_t... I>
  void assign_each(void* const* values, std::index_sequence<I...>) {
    (assign_one<P>(std::get<I>(arguments), values[I]), ...);
  }
  // By its bytes: a kernel's parameters are trivially copyable, and may be const.
  template <class One, class Argument>
  static void assign_one(Argument& to, const void* from) {
    if constexpr (!std::is_reference<One>::value) std::memcpy((void*)__builtin_addressof(to), from, sizeof to);
  }

  template <size_t... I>
  void submit_with(Call call, std::index_sequence<I...>) {
    static constexpr ArgumentType types[] = {describe<handed<P>>()..., ArgumentType{}};
    void* addresses[] = {(void*)&std::get<I>(arguments)..., nullptr};
    void* values[] = {std::is_reference<P>::value ? (void*)&addresses[I] : addresses[I]..., nullptr};
    call.invoke = &invoke;
    call.closure = this;
    call.copy = &copy;
    call.submit_copy = &submit_copy;
    call.assign = &assign;
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
  void operator()(P... arguments) const { start(Kept<P>(std::forward<P>(arguments))...); }
  void start(Kept<P>... arguments) const {
    Closure<void (*)(P...), P...> closure{function, std::tuple<Kept<P>...>(std::forward<Kept<P>>(arguments)...)};
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
  // What `__cluster_dims__` says of the kernel.
  Launch& clusters(unsigned x, unsigned y = 1, unsigned z = 1) {
    call.cluster = dim3(x, y, z);
    return *this;
  }
  // What cudaLaunchCooperativeKernel asks.
  Launch& together() {
    call.cluster = call.grid;
    call.is_together = true;
    return *this;
  }
  template <class... P>
  Bound<P...> of(void (*function)(P...)) const {
    Bound<P...> bound{call, function};
    bound.call.function = (const void*)function;
    bound.call.kernel = NamedKernel::name_of(bound.call.function, call.kernel);
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
                     cudaStream_t = nullptr) {
  Launch result{};
  result.call.site = site;
  result.call.kernel = kernel;
  result.call.grid = grid;
  result.call.block = block;
  result.call.shared_bytes = shared_bytes;
  return result;
}

// A `__constant__` or `__device__` variable that captures and fixed-point proofs must know.
struct GlobalVariable {
  const char* name;
  void* address;
  size_t size;
  bool functions;  // holds pointers to functions
  GlobalVariable* next;
  GlobalVariable(const char* name, const void* address, size_t size, bool functions);
};

}  // namespace cudaops

#define CUDAOPS_JOIN_(a, b) a##b
#define CUDAOPS_JOIN(a, b) CUDAOPS_JOIN_(a, b)
#define CUDAOPS_GLOBAL(text, expression)                           \
  static ::cudaops::GlobalVariable CUDAOPS_JOIN(cudaops_global_, __COUNTER__)( \
      text, (const void*)__builtin_addressof(expression), sizeof(expression),                \
      ::cudaops::points_to_function<std::remove_all_extents_t<decltype(expression)>>)
#ifndef CUDAOPS_LAUNCH
#define CUDAOPS_LAUNCH ::cudaops::Launch
#endif
#include "macros_on.h"
