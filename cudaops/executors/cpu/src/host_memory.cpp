// What of this process a kernel may touch beside allocations and shared memory: what was loaded
// (constants, variables of the program), stacks (arguments lie on them), thread-local variables and
// the heap (`malloc` in device code). Anything else that is mapped belongs to the machine itself: an
// access there goes astray and only seems to work. Ranges are noted outside of kernels, where nothing
// that is called here is itself checked.
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "machine.h"

namespace cudaops {

struct Range {
  uintptr_t low, high;
  bool holds(uintptr_t a) const { return a - low < high - low; }
};

// The heap is one piece then, and what `malloc` gives is told from any other mapping.
__attribute__((constructor)) static void keep_the_heap_together() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
}

struct Ranges {
  Range at[256];
  unsigned count = 0;
  void add(uintptr_t low, size_t size) {
    if (count == 256) stop("infrastructure", nullptr, "too many libraries are loaded to check accesses");
    at[count++] = {low, low + size};
  }
  bool hold(uintptr_t a) const {
    for (unsigned i = 0; i < count; ++i)
      if (at[i].holds(a)) return true;
    return false;
  }
};
static Ranges loaded;           // the same for every thread
static Range launcher;          // stack of the thread that launches: arguments lie there
static thread_local Ranges own; // stack and thread-local variables

static void add_segments(unsigned type, Ranges& into) {
  auto note = [](dl_phdr_info* object, size_t, void* of) {
    auto [type, into] = *static_cast<std::pair<unsigned, Ranges*>*>(of);
    auto base = type == PT_TLS ? (uintptr_t)object->dlpi_tls_data : (uintptr_t)object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum && (type != PT_TLS || base); ++i) {
      const auto& part = object->dlpi_phdr[i];
      if (part.p_type == type) into->add(type == PT_TLS ? base : base + part.p_vaddr, part.p_memsz);
    }
    return 0;
  };
  std::pair<unsigned, Ranges*> of{type, &into};
  dl_iterate_phdr(note, &of);
}

static Range stack_of_this_thread() {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t size = 0;
  bool known = !pthread_getattr_np(pthread_self(), &attributes);
  if (known) {
    known = !pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
  }
  if (!known) stop("infrastructure", nullptr, "where this thread's stack lies cannot be found out");
  return {(uintptr_t)low, (uintptr_t)low + size};
}

void note_launcher() {
  launcher = stack_of_this_thread();
  loaded.count = 0;
  add_segments(PT_LOAD, loaded);
}

void note_worker() {
  if (own.count) return;
  Range stack = stack_of_this_thread();
  add_segments(PT_TLS, own);
  own.add(stack.low, stack.high - stack.low);
}

bool known_to_host(uintptr_t a) {
  extern char heap_begin asm("_end");
  return own.hold(a) || launcher.holds(a) || loaded.hold(a) || (a >= (uintptr_t)&heap_begin && a < (uintptr_t)sbrk(0));
}

}  // namespace cudaops
