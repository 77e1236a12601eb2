// Kernels by their addresses, for launches through a pointer or a parameter, where what stands there is no
// kernel's name, and for those that hand over their arguments packed. Also read by nvcc.
#ifndef CUDAOPS_NAMED_KERNELS_H
#define CUDAOPS_NAMED_KERNELS_H

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

}  // namespace cudaops

#define CUDAOPS_NAMED_(line) cudaops_kernel_##line
#define CUDAOPS_NAMED(line) CUDAOPS_NAMED_(line)
#define CUDAOPS_KERNEL(text, kernel) \
  static ::cudaops::NamedKernel CUDAOPS_NAMED(__COUNTER__)(text, (const void*)kernel, CUDAOPS_PACKED_START(kernel))

#endif
