// What device code sees of the machine: its indices, barriers and warp operations.
// Defined in the runtime object; every function notes its return address as the author's site.
#pragma once
#include <cstddef>
#include <cstdint>

#include "vector_types.h"

#define CUDAOPS_TLS __attribute__((tls_model("local-exec")))

extern __thread uint3 threadIdx CUDAOPS_TLS;
extern __thread uint3 blockIdx CUDAOPS_TLS;
extern __thread dim3 blockDim CUDAOPS_TLS;
extern __thread dim3 gridDim CUDAOPS_TLS;
extern __thread bool cudaops_carry CUDAOPS_TLS;  // CC.CF of PTX, from one statement to the next
static constexpr int warpSize = 32;
// One block of bytes a worker serves every `extern __shared__` array.
extern "C" {
extern __thread char cudaops_dynamic_shared[] CUDAOPS_TLS;
}

void __syncthreads();
int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);
void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __activemask();
void __nanosleep(unsigned nanoseconds);
long long clock64();
unsigned long long cudaops_nanoseconds();  // of a clock of the machine, which is none of the program's

namespace cudaops {

constexpr int multiprocessors = 72;  // of the device that programs are told of

enum class Space : unsigned char { Global, Shared, Local, Program, Host };

// Mask 0 stands for the lanes that are there: the operations without `_sync`.
unsigned long long warp_shuffle(unsigned mask, unsigned long long value, unsigned source);
unsigned warp_ballot(unsigned mask, bool predicate, unsigned* members);
unsigned warp_match(unsigned mask, unsigned long long value);
// Every lane's value, in lane order; returns the lanes that took part.
unsigned warp_gather(unsigned mask, unsigned long long value, unsigned long long* all);

// Blocks that run together and see each other's shared memory: one block where there is no cluster.
struct ClusterPlace {
  dim3 blocks, block;  // how many in each axis, and which of them this one is
  unsigned size, rank;
};
ClusterPlace cluster_place();
void cluster_arrive();
void cluster_wait();
bool is_together();  // whether the blocks of the grid may wait for each other
void grid_arrive();
void grid_wait();
void* cluster_map(const void* shared, unsigned rank);
unsigned cluster_rank_of(const void* shared);
bool is_shared(const void* p);  // whether it points into this block's shared memory

// A copy of `taken` bytes, and zeros up to `size`, that its thread makes when it waits for it.
struct AsyncCopy {
  void* to;
  const void* from;
  unsigned size, taken;
};
void async_copy(const AsyncCopy& copy);
void async_commit();
// The oldest that belongs to none of the `left` batches committed last; whether there is one.
bool async_next(unsigned left, AsyncCopy* copy);

unsigned lane();
void spin();  // called when an atomic operation found the value it did not want
size_t dynamic_shared_bytes();

#ifdef CUDAOPS_INSTRUMENTED
void note_atomic(const volatile void* address, unsigned size, const void* pc);
#endif

}  // namespace cudaops
