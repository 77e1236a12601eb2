// cuda::pipeline of one thread, and of a block whose threads all copy and all use. Copies are made when
// they are waited for, as in cuda_pipeline.h. Source: CUDA C++ Programming Guide, pipeline interface.
#pragma once
#include "macros_off.h"
#include "cuda.h"
#include "cooperative_groups/memcpy_async.h"

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
enum class pipeline_role { producer, consumer };

template <size_t N>
struct aligned_size_t {
  static constexpr size_t align = N;
  size_t value;
  explicit constexpr aligned_size_t(size_t size) : value(size) {}
  constexpr operator size_t() const { return value; }
};

// Nothing is shared: barriers of the block keep its threads together.
template <thread_scope S, unsigned char N>
class pipeline_shared_state {};

template <thread_scope S>
class pipeline {
  static_assert(S == thread_scope_block || S == thread_scope_thread,
                "a cuda::pipeline of a block or a thread runs on the cpu executor; use --executor cuda");

 public:
  pipeline() = default;
  pipeline(const pipeline&) = delete;
  pipeline(pipeline&&) = default;
  CUDAOPS_INLINE void producer_acquire() { together(); }
  CUDAOPS_INLINE void producer_commit() { cudaops::async_commit(), ++committed_; }
  CUDAOPS_INLINE void consumer_wait() {
    cudaops::wait_for_copies(committed_ > released_ ? committed_ - released_ - 1 : 0);
    together();
  }
  CUDAOPS_INLINE void consumer_wait_prior(unsigned left) {
    cudaops::wait_for_copies(left);
    together();
  }
  CUDAOPS_INLINE void consumer_release() { ++released_; }
  CUDAOPS_INLINE bool quit() { return true; }

 private:
  CUDAOPS_INLINE static void together() {
    if (S == thread_scope_block) __syncthreads();
  }
  unsigned committed_ = 0, released_ = 0;
};

CUDAOPS_INLINE pipeline<thread_scope_thread> make_pipeline() { return {}; }
template <class Group, unsigned char N>
CUDAOPS_INLINE pipeline<thread_scope_block> make_pipeline(const Group&, pipeline_shared_state<thread_scope_block, N>*) {
  static_assert(std::is_same<Group, cooperative_groups::thread_block>::value,
                "a cuda::pipeline of a whole block or a thread runs on the cpu executor; use --executor cuda");
  return {};
}
template <class Group, unsigned char N, class R>
pipeline<thread_scope_block> make_pipeline(const Group&, pipeline_shared_state<thread_scope_block, N>*, R) {
  static_assert(sizeof(R) == 0,
                "a cuda::pipeline of producers and consumers has no meaning on the cpu executor; use --executor cuda");
  return {};
}

template <unsigned char N, thread_scope S>
CUDAOPS_INLINE void pipeline_consumer_wait_prior(pipeline<S>& pipe) { pipe.consumer_wait_prior(N); }

template <class Size, thread_scope S>
CUDAOPS_INLINE void memcpy_async(void* to, const void* from, Size size, pipeline<S>&) {
  size_t bytes = size;
  uintptr_t all = (uintptr_t)to | (uintptr_t)from | bytes;
  unsigned word = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
  for (size_t at = 0; at < bytes; at += word)
    cudaops::async_copy(cudaops::AsyncCopy{(char*)to + at, (const char*)from + at, word, word});
}
template <class Group, class To, class From, class Size, thread_scope S>
CUDAOPS_INLINE void memcpy_async(const Group& group, To* to, const From* from, Size size, pipeline<S>&) {
  size_t bytes = size;
  uintptr_t all = (uintptr_t)to | (uintptr_t)from | bytes;
  unsigned word = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
  for (size_t at = (size_t)group.thread_rank() * word; at < bytes; at += (size_t)group.size() * word)
    cudaops::async_copy(cudaops::AsyncCopy{(char*)to + at, (const char*)from + at, word, word});
}

}  // namespace cuda
#include "macros_on.h"
