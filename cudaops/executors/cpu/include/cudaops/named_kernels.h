// Kernels by their addresses, for launches through a pointer or a parameter, where what stands there is no
// kernel's name, and for those that hand over their arguments packed. Also read by nvcc.
#ifndef CUDAOPS_NAMED_KERNELS_H
#define CUDAOPS_NAMED_KERNELS_H
#include <cstddef>
#include <type_traits>
#include <utility>

#include "argument_types.h"

namespace cudaops {

struct NamedKernel {
  const char* name;
  const void* address;
  void (*start)(const void* launch, const void* address, void** arguments);  // of the recorder
  NamedKernel* next;
  static NamedKernel*& first() {
    static NamedKernel* kernel = nullptr;
    return kernel;
  }
  NamedKernel(const char* name, const void* address, void (*start)(const void*, const void*, void**))
      : name(name), address(address), start(start), next(first()) {
    first() = this;
  }
  static const NamedKernel* find(const void* address) {
    const NamedKernel* kernel = first();
    while (kernel && kernel->address != address) kernel = kernel->next;
    return kernel;
  }
  static const char* name_of(const void* address, const char* written) {
    const NamedKernel* kernel = find(address);
    return kernel ? kernel->name : written;
  }
};

// Launches a kernel by `Launch`, a recorder's own, with each argument where a pointer says.
template <class Launch, class... P>
struct PackedStart {
  template <size_t... I>
  static void unpack(const Launch& launch, void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    launch.of(kernel).start(Kept<P>(*static_cast<std::remove_reference_t<P>*>(arguments[I]))...);
  }
  static void start(const void* launch, const void* address, void** arguments) {
    unpack(*static_cast<const Launch*>(launch), (void (*)(P...))address, arguments, std::index_sequence_for<P...>());
  }
};
// Clusters that a launch asks for by an attribute: its text does not say them to who judges a rewrite.
constexpr const char* clusters_by_attribute =
    "it is launched with clusters by an attribute; write __cluster_dims__ at the kernel instead";

template <class Launch, class... P> auto packed_start(void (*)(P...)) { return &PackedStart<Launch, P...>::start; }

// What a call of several functions of one name gives back: the number of the kernel that is meant, and its type.
// `Condition`: what a template gives back that not every type may stand in for.
template <int Index, class Function, class Condition = void> struct Overload;
template <int Index, class... P, class Condition>
struct Overload<Index, void(P...), Condition> {
  static constexpr int index = Index;
  using Pointer = void (*)(P...);
};
template <class... Names> const char* overload_name(int index, Names... names) {
  const char* all[] = {names...};
  return all[index];
}

// An instance of a template, which is told by its address once it is launched by that.
template <class Launch, class... P>
void name_instance(const char* name, void (*kernel)(P...)) {
  if (!NamedKernel::find((const void*)kernel)) new NamedKernel(name, (const void*)kernel, packed_start<Launch>(kernel));
}

}  // namespace cudaops

#define CUDAOPS_NAMED_(line) cudaops_kernel_##line
#define CUDAOPS_NAMED(line) CUDAOPS_NAMED_(line)
#define CUDAOPS_KERNEL(text, kernel) \
  static ::cudaops::NamedKernel CUDAOPS_NAMED(__COUNTER__)(text, (const void*)kernel, ::cudaops::packed_start<CUDAOPS_LAUNCH>(kernel))

#endif
