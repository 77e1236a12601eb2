// Copies that a thread has asked for and makes when it waits for them.
#pragma once
#include "macros_off.h"
#include "vector_types.h"
#include "warp.h"

namespace cudaops {

template <class Word>
CUDAOPS_INLINE void copy_word(const AsyncCopy& copy) { *(Word*)copy.to = *(const Word*)copy.from; }
CUDAOPS_INLINE void make_copy(const AsyncCopy& copy) {
  if (copy.taken == 16 && copy.size == 16) return copy_word<uint4>(copy);
  if (copy.taken == 8 && copy.size == 8) return copy_word<uint2>(copy);
  if (copy.taken == 4 && copy.size == 4) return copy_word<unsigned>(copy);
  for (unsigned i = 0; i < copy.size; ++i) ((char*)copy.to)[i] = i < copy.taken ? ((const char*)copy.from)[i] : 0;
}
CUDAOPS_INLINE void wait_for_copies(unsigned left) {
  AsyncCopy copy;
  while (async_next(left, &copy)) make_copy(copy);
}

}  // namespace cudaops
#include "macros_on.h"
