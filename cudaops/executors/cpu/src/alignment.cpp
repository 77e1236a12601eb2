// Accesses at an address that does not suit their type, where a GPU stops: g++ calls this function for
// -fsanitize=alignment, which knows the type, and no sanitizer library is linked.
#include <cstdint>
#include <cstdio>

#include "machine.h"

namespace cudaops {

// What g++ 11 and later hand over (gcc/ubsan.cc, ubsan_create_data): the first two members are the
// place in the source, which the return address gives as well.
struct Misfit {
  struct {
    const char* file;
    unsigned line, column;
  } place;
  const struct Type {
    unsigned short kind, information;
    char name[1];  // 'const struct float4'
  }* type;
  unsigned char alignment_log2, access;
};
// The rest, such as binding a reference, touches nothing. A member by itself may suit its own address,
// but nvcc takes the structure's alignment for granted and merges members into one access.
constexpr unsigned char load = 0, store = 1, member = 3;

// Whether memory of this kind begins where a GPU would let it begin. A thread's own variables do not:
// there they are registers mostly.
static bool placed_as_on_a_gpu(const Worker& w, uintptr_t a) {
  if (in_shared(w, (const char*)a)) return true;
  if (const Allocation* found = allocation_around(a))
    return a >= found->begin && a < found->begin + found->size;  // else it is out of bounds
  return in_global_variable(a);
}

static void misaligned(const Misfit& misfit, uintptr_t a, const void* pc) {
  Worker* w = worker;
  if (!w || !w->in_kernel || depth() == Depth::None) return;
  if (misfit.access != load && misfit.access != store && misfit.access != member) return;
  size_t bytes = (size_t)1 << misfit.alignment_log2;
  if (a % bytes == 0 || !placed_as_on_a_gpu(*w, a)) return;
  char name[160] = "shared memory or a variable";
  if (const Allocation* found = allocation_around(a)) name_allocation(name, sizeof name, w->call, *found);
  stop("out_of_bounds", pc, "misaligned access of %zu bytes: %s of %s, %zu bytes past a multiple of %zu, in %s", bytes,
       misfit.access == load ? "read" : misfit.access == store ? "write" : "a member", misfit.type->name, (size_t)(a % bytes), bytes, name);
}

}  // namespace cudaops

extern "C" void __ubsan_handle_type_mismatch_v1(void* misfit, uintptr_t address) {
  cudaops::misaligned(*(const cudaops::Misfit*)misfit, address, __builtin_return_address(0));
}
