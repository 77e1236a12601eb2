// Warp shuffles, votes, matches and reductions over the runtime's collectives.
// Lane arithmetic follows the PTX ISA's description of `shfl` and its `c` operand.
#pragma once
#include "macros_off.h"
#include <cstring>
#include <type_traits>

#include "context.h"

namespace cudaops {

template <class T>
__attribute__((always_inline)) inline T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 16,
                "a shuffle moves trivially copyable values of at most 16 bytes");
  unsigned long long words[2] = {0, 0};
  std::memcpy(words, &value, sizeof(T));
  words[0] = warp_shuffle(mask, words[0], source);
  if (sizeof(T) > 8) words[1] = warp_shuffle(mask, words[1], source);
  std::memcpy(&value, words, sizeof(T));
  return value;
}

inline unsigned source_indexed(unsigned index, unsigned width) {
  return (lane() & ~(width - 1)) | (index & (width - 1));
}
inline unsigned source_up(unsigned delta, unsigned width) {
  unsigned self = lane();
  return (self & (width - 1)) < delta ? self : self - delta;
}
inline unsigned source_down(unsigned delta, unsigned width) {
  unsigned self = lane();
  return (self & (width - 1)) + delta >= width ? self : self + delta;
}
inline unsigned source_xor(unsigned bits, unsigned width) {
  unsigned self = lane(), other = self ^ bits;
  return other > (self | (width - 1)) ? self : other;
}

}  // namespace cudaops

#define CUDAOPS_SHUFFLE(name, source)                                                         \
  template <class T>                                                                          \
  __attribute__((always_inline)) inline T __##name##_sync(unsigned mask, T value,             \
                                                          unsigned argument, int width = 32) { \
    return cudaops::shuffle(mask, value, cudaops::source(argument, width));                   \
  }                                                                                           \
  template <class T>                                                                          \
  __attribute__((always_inline)) inline T __##name(T value, unsigned argument, int width = 32) { \
    return cudaops::shuffle(0u, value, cudaops::source(argument, width));                     \
  }
CUDAOPS_SHUFFLE(shfl, source_indexed)
CUDAOPS_SHUFFLE(shfl_up, source_up)
CUDAOPS_SHUFFLE(shfl_down, source_down)
CUDAOPS_SHUFFLE(shfl_xor, source_xor)
#undef CUDAOPS_SHUFFLE

#define CUDAOPS_INLINE __attribute__((always_inline)) inline
CUDAOPS_INLINE unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned members;
  return cudaops::warp_ballot(mask, predicate, &members);
}
CUDAOPS_INLINE int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
CUDAOPS_INLINE int __all_sync(unsigned mask, int predicate) {
  unsigned members;
  return cudaops::warp_ballot(mask, predicate, &members) == members;
}
CUDAOPS_INLINE int __uni_sync(unsigned mask, int predicate) {
  unsigned members, votes = cudaops::warp_ballot(mask, predicate, &members);
  return votes == 0 || votes == members;
}
CUDAOPS_INLINE unsigned __ballot(int predicate) { return __ballot_sync(0u, predicate); }
CUDAOPS_INLINE int __any(int predicate) { return __any_sync(0u, predicate); }
CUDAOPS_INLINE int __all(int predicate) { return __all_sync(0u, predicate); }

template <class T>
CUDAOPS_INLINE unsigned __match_any_sync(unsigned mask, T value) {
  unsigned long long word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return cudaops::warp_match(mask, word);
}
template <class T>
CUDAOPS_INLINE unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
  unsigned long long word = 0, all[32];
  std::memcpy(&word, &value, sizeof(T));
  unsigned members = cudaops::warp_gather(mask, word, all);
  *predicate = 1;
  for (unsigned i = 0; i < 32; ++i)
    if ((members >> i & 1) && all[i] != word) *predicate = 0;
  return *predicate ? members : 0;
}

#define CUDAOPS_REDUCE(name, T, combine)                                          \
  CUDAOPS_INLINE T __reduce_##name##_sync(unsigned mask, T value) {               \
    unsigned long long all[32];                                                   \
    unsigned members = cudaops::warp_gather(mask, (unsigned long long)value, all); \
    bool first = true;                                                            \
    T result{};                                                                   \
    for (unsigned i = 0; i < 32; ++i) {                                           \
      if (!(members >> i & 1)) continue;                                          \
      T other = (T)all[i];                                                        \
      result = first ? other : (combine);                                         \
      first = false;                                                              \
    }                                                                             \
    return result;                                                                \
  }
CUDAOPS_REDUCE(add, unsigned, result + other)
CUDAOPS_REDUCE(add, int, (int)((unsigned)result + (unsigned)other))
CUDAOPS_REDUCE(min, unsigned, other < result ? other : result)
CUDAOPS_REDUCE(min, int, other < result ? other : result)
CUDAOPS_REDUCE(max, unsigned, other > result ? other : result)
CUDAOPS_REDUCE(max, int, other > result ? other : result)
CUDAOPS_REDUCE(and, unsigned, result & other)
CUDAOPS_REDUCE(or, unsigned, result | other)
CUDAOPS_REDUCE(xor, unsigned, result ^ other)
#undef CUDAOPS_REDUCE
#include "macros_on.h"
