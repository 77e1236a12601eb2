// Kernels by their addresses, for launches through a pointer or a parameter: what stands there is no
// kernel's name. Also read by nvcc.
#ifndef CUDAOPS_NAMED_KERNELS_H
#define CUDAOPS_NAMED_KERNELS_H

namespace cudaops {

struct NamedKernel {
  const char* name;
  const void* address;
  NamedKernel* next;
  static NamedKernel*& first() {
    static NamedKernel* kernel = nullptr;
    return kernel;
  }
  NamedKernel(const char* name, const void* address) : name(name), address(address), next(first()) { first() = this; }
  static const char* name_of(const void* address, const char* written) {
    for (NamedKernel* kernel = first(); kernel; kernel = kernel->next)
      if (kernel->address == address) return kernel->name;
    return written;
  }
};

}  // namespace cudaops

#define CUDAOPS_NAMED_(line) cudaops_kernel_##line
#define CUDAOPS_NAMED(line) CUDAOPS_NAMED_(line)
#define CUDAOPS_KERNEL(text, kernel) \
  static ::cudaops::NamedKernel CUDAOPS_NAMED(__COUNTER__)(text, (const void*)kernel)

#endif
