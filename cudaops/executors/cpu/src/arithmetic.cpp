// Arithmetic that C++ leaves undefined and a GPU does otherwise than a processor: shifts by the width or
// more (PTX ISA, shl and shr, clamp the count; x86 takes its lowest bits) and conversions of floats that
// the integer type does not hold (PTX ISA, cvt, saturates). Signed integers that run over wrap on both,
// and C++ leaves them undefined all the same: that one did is noted. g++ calls these functions for
// -fsanitize=shift-exponent,float-cast-overflow,signed-integer-overflow, and no sanitizer library is
// linked.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "machine.h"

namespace cudaops {

// What g++ 11 and later hand over (gcc/ubsan.cc, ubsan_type_descriptor and ubsan_create_data): the place
// in the source, which the return address gives as well, and two types.
struct NumberType {
  unsigned short kind, information;  // 0 and sign + 2 * log2 of the bits for integers, 1 and the bits for floats
  char name[1];                      // 'unsigned int'
};
struct Operation {
  struct {
    const char* file;
    unsigned line, column;
  } place;
  const NumberType *first, *second;
};

static bool tells(const void* pc) {
  return worker && worker->in_kernel && depth() == Depth::Full && first_time(found_arithmetic, pc, nullptr);
}

// A signed count comes in the lowest bytes of a register.
static long long count_of(const NumberType& type, uintptr_t bits) {
  return type.information & 1 && type.information >> 1 <= 5 ? (long long)(int)bits : (long long)bits;
}

static void shifted(const Operation& done, uintptr_t count, const void* pc) {
  if (!tells(pc)) return;
  warn("undefined_arithmetic", pc, nullptr, "shifts %u bits by %lld, where a GPU shifts everything out and a processor does not",
       1u << (done.first->information >> 1), count_of(*done.second, count));
}

static void converted(const Operation& done, uintptr_t bits, const void* pc) {
  if (!tells(pc)) return;
  char number[40] = "a number";
  float narrow;
  double wide;
  if (done.first->information == 32) std::memcpy(&narrow, &bits, sizeof narrow), snprintf(number, sizeof number, "%.9g", (double)narrow);
  if (done.first->information == 64) std::memcpy(&wide, &bits, sizeof wide), snprintf(number, sizeof number, "%.17g", wide);
  warn("undefined_arithmetic", pc, nullptr, "converts %s to %s, which does not hold it: a GPU takes the nearest that it holds", number,
       done.second->name);
}

static void overflowed() {
  if (worker && worker->in_kernel && !ran_over.load(std::memory_order_relaxed)) ran_over = true;
}

}  // namespace cudaops

extern "C" void __ubsan_handle_shift_out_of_bounds(void* done, uintptr_t, uintptr_t count) {
  cudaops::shifted(*(const cudaops::Operation*)done, count, __builtin_return_address(0));
}
extern "C" void __ubsan_handle_float_cast_overflow(void* done, uintptr_t value) {
  cudaops::converted(*(const cudaops::Operation*)done, value, __builtin_return_address(0));
}
extern "C" void __ubsan_handle_add_overflow(void*, uintptr_t, uintptr_t) { cudaops::overflowed(); }
extern "C" void __ubsan_handle_sub_overflow(void*, uintptr_t, uintptr_t) { cudaops::overflowed(); }
extern "C" void __ubsan_handle_mul_overflow(void*, uintptr_t, uintptr_t) { cudaops::overflowed(); }
extern "C" void __ubsan_handle_negate_overflow(void*, uintptr_t) { cudaops::overflowed(); }
extern "C" void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t) { cudaops::overflowed(); }
