// cuda_pipeline.h: copies that are made when the thread waits for them, so that whoever reads earlier sees
// what was there before, as may happen on a GPU.
#pragma once
#include "cudaops/cuda.h"

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

// Source: CUDA C++ Programming Guide, pipeline primitives interface.
CUDAOPS_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t size, size_t zeros = 0) {
  cudaops::async_copy(cudaops::AsyncCopy{to, from, (unsigned)size, (unsigned)(size - zeros)});
}
CUDAOPS_INLINE void __pipeline_commit() { cudaops::async_commit(); }
CUDAOPS_INLINE void __pipeline_wait_prior(size_t left) { cudaops::wait_for_copies((unsigned)left); }
