// cuda_pipeline.h: copies that are made when the thread waits for them, so that whoever reads earlier sees
// what was there before, as may happen on a GPU.
#pragma once
#include "cudaops/cuda.h"

// Source: CUDA C++ Programming Guide, pipeline primitives interface.
CUDAOPS_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t size, size_t zeros = 0) {
  cudaops::async_copy(cudaops::AsyncCopy{to, from, (unsigned)size, (unsigned)(size - zeros)});
}
CUDAOPS_INLINE void __pipeline_commit() { cudaops::async_commit(); }
CUDAOPS_INLINE void __pipeline_wait_prior(size_t left) { cudaops::wait_for_copies((unsigned)left); }
