// Compiled into a unit for the stand-in GPU, after cudaops/entry.h: what a driver knows of kernels and
// variables (unit.py reads it), and a child that ends with its runner.
#pragma once
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cudaops {
namespace standin {

// Appends to the file that CUDAOPS_STANDIN_DESCRIBE names: `entry INDEX`, then a `parameter KIND SIZE`
// each, and `variable SIZE NAME`.
struct Description {
  FILE* file;
  Description() : file(nullptr) {
    if (const char* path = getenv("CUDAOPS_STANDIN_DESCRIBE")) file = fopen(path, "a");
  }
  ~Description() {
    if (file) fclose(file);
  }
};

template <class P>
const char* kind() {
  if (std::is_pointer<P>::value) return "pointer";
  if (std::is_integral<P>::value || std::is_enum<P>::value) return "integer";
  return std::is_floating_point<P>::value ? "floating" : "bytes";
}

template <class... P>
int described_entry(int index, void (*)(P...)) {
  Description out;
  if (!out.file) return index;
  fprintf(out.file, "entry\t%d\n", index);
  const char* kinds[] = {kind<P>()..., nullptr};
  const size_t sizes[] = {sizeof(P)..., 0};
  for (size_t i = 0; i < sizeof...(P); ++i) fprintf(out.file, "parameter\t%s\t%zu\n", kinds[i], sizes[i]);
  return index;
}

template <class T>
T& described_variable(const char* name, T& variable) {
  Description out;
  if (out.file) fprintf(out.file, "variable\t%zu\t%s\n", sizeof(T), name);
  return variable;
}

// A kernel that never ends must not outlive the runner, however the runner ends.
__attribute__((constructor)) static void end_with_the_runner() {
  const char* runner = getenv("CUDAOPS_STANDIN_RUNNER");
  if (!runner) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != (pid_t)atol(runner)) _exit(1);
}

// `ADDRESS:SIZE` in hexadecimal, between commas: variables of a rewrite's own text, which nobody registers.
__attribute__((constructor)) static void register_variables() {
  const char* text = getenv("CUDAOPS_STANDIN_VARIABLES");
  while (text && *text) {
    char *end, name[32];
    unsigned long long address = strtoull(text, &end, 16);
    unsigned long long size = strtoull(end + 1, &end, 16);
    snprintf(name, sizeof name, "at_%llx", address);
    new GlobalVariable(strdup(name), (const void*)(uintptr_t)address, (size_t)size, false);
    text = *end ? end + 1 : end;
  }
}

}  // namespace standin
}  // namespace cudaops

#undef CUDAOPS_ENTRY
#define CUDAOPS_ENTRY(index, text, ...) \
  static ::cudaops::Entry cudaops_entry_##index =                                                  \
      ::cudaops::make_entry(::cudaops::standin::described_entry(index, __VA_ARGS__), text, __VA_ARGS__)
#undef CUDAOPS_GLOBAL
#define CUDAOPS_GLOBAL(text, expression)                                                                       \
  static ::cudaops::GlobalVariable CUDAOPS_JOIN(cudaops_global_, __COUNTER__)(                                 \
      text, (const void*)__builtin_addressof(::cudaops::standin::described_variable(text, expression)),        \
      sizeof(expression), false)
