// memcpy_async of a group: each thread asks for its share, in words as wide as all addresses allow.
#pragma once
#include "../cudaops/macros_off.h"
#include "cooperative_groups.h"
#include "cuda_pipeline.h"

namespace cooperative_groups {

template <class Group, class To, class From>
CUDAOPS_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes) {
  uintptr_t all = (uintptr_t)to | (uintptr_t)from | bytes;
  unsigned word = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
  for (size_t at = (size_t)group.thread_rank() * word; at < bytes; at += (size_t)group.size() * word)
    cudaops::async_copy(cudaops::AsyncCopy{(char*)to + at, (const char*)from + at, word, word});
  cudaops::async_commit();
}
template <unsigned LEFT, class Group>
CUDAOPS_INLINE void wait_prior(const Group& group) {
  cudaops::wait_for_copies(LEFT);
  group.sync();
}
template <class Group>
CUDAOPS_INLINE void wait(const Group& group) { wait_prior<0>(group); }

}  // namespace cooperative_groups
#include "../cudaops/macros_on.h"
