// CUDA's atomic functions: atomic between the worker threads that run blocks.
#pragma once
#include "macros_off.h"
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "context.h"

#define CUDAOPS_ATOMIC __attribute__((always_inline))
// An instrumented build reports each operation once, as atomic, from the author's line: g++ turns
// the builtins below into calls of the runtime, and a compare-and-swap loop notes itself.
#ifdef CUDAOPS_INSTRUMENTED
#define CUDAOPS_ATOMIC_LOOP __attribute__((noinline, no_sanitize("thread")))
#define CUDAOPS_NOTE(p) ::cudaops::note_atomic(p, sizeof(*p), __builtin_return_address(0))
#else
#define CUDAOPS_ATOMIC_LOOP CUDAOPS_ATOMIC
#define CUDAOPS_NOTE(p) (void)0
#endif

namespace cudaops {

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <class T, class F>
CUDAOPS_ATOMIC_LOOP inline T atomic_update(T* address, F next) {
  CUDAOPS_NOTE(address);
  using Bits = bits_of<T>;
  auto* cell = reinterpret_cast<Bits*>(address);
  Bits seen = __atomic_load_n(cell, __ATOMIC_RELAXED);
  for (;;) {
    T old;
    std::memcpy(&old, &seen, sizeof(T));
    T fresh = next(old);
    Bits wanted;
    std::memcpy(&wanted, &fresh, sizeof(T));
    if (__atomic_compare_exchange_n(cell, &seen, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return old;
  }
}

}  // namespace cudaops

#define CUDAOPS_ATOMIC_INTEGER(T)                                                                 \
  CUDAOPS_ATOMIC inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); } \
  CUDAOPS_ATOMIC inline T atomicSub(T* p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); } \
  CUDAOPS_ATOMIC inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); } \
  CUDAOPS_ATOMIC inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }   \
  CUDAOPS_ATOMIC inline T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); } \
  CUDAOPS_ATOMIC inline T atomicMin(T* p, T v) { return cudaops::atomic_update(p, [v](T o) { return v < o ? v : o; }); } \
  CUDAOPS_ATOMIC inline T atomicMax(T* p, T v) { return cudaops::atomic_update(p, [v](T o) { return v > o ? v : o; }); } \
  CUDAOPS_ATOMIC inline T atomicExch(T* p, T v) {                                                 \
                                                                                 \
    T old = __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL);                                          \
    if (old == v) cudaops::spin();                                                                \
    return old;                                                                                   \
  }                                                                                               \
  CUDAOPS_ATOMIC inline T atomicCAS(T* p, T compare, T v) {                                       \
                                                                                 \
    T seen = compare;                                                                             \
    if (!__atomic_compare_exchange_n(p, &seen, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))     \
      cudaops::spin();                                                                            \
    return seen;                                                                                  \
  }
CUDAOPS_ATOMIC_INTEGER(int)
CUDAOPS_ATOMIC_INTEGER(unsigned)
CUDAOPS_ATOMIC_INTEGER(long)
CUDAOPS_ATOMIC_INTEGER(unsigned long)
CUDAOPS_ATOMIC_INTEGER(long long)
CUDAOPS_ATOMIC_INTEGER(unsigned long long)
#undef CUDAOPS_ATOMIC_INTEGER

CUDAOPS_ATOMIC inline unsigned short atomicCAS(unsigned short* p, unsigned short compare, unsigned short v) {
  unsigned short seen = compare;
  if (!__atomic_compare_exchange_n(p, &seen, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) cudaops::spin();
  return seen;
}

#define CUDAOPS_ATOMIC_FLOATING(T)                                                                \
  CUDAOPS_ATOMIC inline T atomicAdd(T* p, T v) { return cudaops::atomic_update(p, [v](T o) { return o + v; }); } \
  CUDAOPS_ATOMIC inline T atomicSub(T* p, T v) { return cudaops::atomic_update(p, [v](T o) { return o - v; }); } \
  CUDAOPS_ATOMIC inline T atomicExch(T* p, T v) { return cudaops::atomic_update(p, [v](T) { return v; }); }
CUDAOPS_ATOMIC_FLOATING(float)
CUDAOPS_ATOMIC_FLOATING(double)
#undef CUDAOPS_ATOMIC_FLOATING

CUDAOPS_ATOMIC inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return cudaops::atomic_update(p, [limit](unsigned o) { return o >= limit ? 0u : o + 1; });
}
CUDAOPS_ATOMIC inline unsigned atomicDec(unsigned* p, unsigned limit) {
  return cudaops::atomic_update(p, [limit](unsigned o) { return o == 0 || o > limit ? limit : o - 1; });
}

// The `_block` and `_system` scopes mean the same here.
#define CUDAOPS_SCOPED(name)                                                                      \
  template <class T, class... A>                                                                  \
  CUDAOPS_ATOMIC inline T name##_block(T* p, A... a) { return name(p, (T)a...); }                 \
  template <class T, class... A>                                                                  \
  CUDAOPS_ATOMIC inline T name##_system(T* p, A... a) { return name(p, (T)a...); }
CUDAOPS_SCOPED(atomicAdd)
CUDAOPS_SCOPED(atomicSub)
CUDAOPS_SCOPED(atomicMin)
CUDAOPS_SCOPED(atomicMax)
CUDAOPS_SCOPED(atomicExch)
CUDAOPS_SCOPED(atomicCAS)
CUDAOPS_SCOPED(atomicAnd)
CUDAOPS_SCOPED(atomicOr)
CUDAOPS_SCOPED(atomicXor)
#undef CUDAOPS_SCOPED

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#include "macros_on.h"
