// cooperative_groups as far as grids, clusters, blocks, tiles of a warp and coalesced threads go.
#pragma once
#include "cudaops/macros_off.h"
#include "cudaops/cuda.h"

namespace cooperative_groups {

// What every group converts to: which kind it was, and of lanes which ones. The derived classes' own
// functions hide these.
class thread_group {
 public:
  CUDAOPS_INLINE void sync() const;
  unsigned long long size() const;
  unsigned long long num_threads() const { return size(); }
  unsigned long long thread_rank() const;

 protected:
  enum class kind : unsigned char { block, cluster, grid, lanes };
  explicit thread_group(kind of) : kind_(of) {}
  // Lanes that a partition made are one part of several.
  thread_group(unsigned mask, unsigned part, unsigned parts)
      : kind_(kind::lanes), part_(part), parts_(parts), mask_(mask) {}
  kind kind_;
  unsigned short part_ = 0, parts_ = 1;
  unsigned mask_ = 0;
  friend thread_group tiled_partition(const thread_group&, unsigned);
};

class thread_block : public thread_group {
 public:
  struct arrival_token {};
  thread_block() : thread_group(kind::block) {}
  CUDAOPS_INLINE static void sync() { __syncthreads(); }
  CUDAOPS_INLINE static arrival_token barrier_arrive() { return arrival_token(); }
  CUDAOPS_INLINE static void barrier_wait(arrival_token&&) { __syncthreads(); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
__attribute__((always_inline)) inline thread_block this_thread_block() { return thread_block(); }

class cluster_group : public thread_group {
 public:
  struct arrival_token {};
  cluster_group() : thread_group(kind::cluster) {}
  CUDAOPS_INLINE static void sync() { cudaops::cluster_arrive(), cudaops::cluster_wait(); }
  CUDAOPS_INLINE static arrival_token barrier_arrive() { return cudaops::cluster_arrive(), arrival_token(); }
  CUDAOPS_INLINE static void barrier_wait() { cudaops::cluster_wait(); }
  CUDAOPS_INLINE static void barrier_wait(arrival_token&&) { cudaops::cluster_wait(); }
  static dim3 block_index() { return cudaops::cluster_place().block; }
  static dim3 dim_blocks() { return cudaops::cluster_place().blocks; }
  static unsigned block_rank() { return cudaops::cluster_place().rank; }
  static unsigned num_blocks() { return cudaops::cluster_place().size; }
  static unsigned thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static unsigned num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned size() { return num_threads(); }
  template <class T>
  CUDAOPS_INLINE static T* map_shared_rank(T* shared, int rank) {
    return static_cast<T*>(cudaops::cluster_map((const void*)shared, (unsigned)rank));
  }
  CUDAOPS_INLINE static unsigned query_shared_rank(const void* shared) { return cudaops::cluster_rank_of(shared); }
};
__attribute__((always_inline)) inline cluster_group this_cluster() { return cluster_group(); }

class grid_group : public thread_group {
 public:
  struct arrival_token {};
  grid_group() : thread_group(kind::grid) {}
  static bool is_valid() { return cudaops::is_together(); }
  CUDAOPS_INLINE static void sync() { cudaops::grid_arrive(), cudaops::grid_wait(); }
  CUDAOPS_INLINE static arrival_token barrier_arrive() { return cudaops::grid_arrive(), arrival_token(); }
  CUDAOPS_INLINE static void barrier_wait() { cudaops::grid_wait(); }
  CUDAOPS_INLINE static void barrier_wait(arrival_token&&) { cudaops::grid_wait(); }
  static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() {
    return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned long long size() { return num_threads(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return dim3(blockIdx); }
};
__attribute__((always_inline)) inline grid_group this_grid() { return grid_group(); }

// Lanes that act together: the mask names them, ranks count within it.
class lane_group : public thread_group {
 public:
  explicit lane_group(unsigned mask, unsigned part = 0, unsigned parts = 1) : thread_group(mask, part, parts) {}
  CUDAOPS_INLINE void sync() const { __syncwarp(mask_); }
  unsigned size() const { return __builtin_popcount(mask_); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return __builtin_popcount(mask_ & ((1u << cudaops::lane()) - 1)); }
  unsigned meta_group_rank() const { return part_; }
  unsigned meta_group_size() const { return parts_; }
  template <class T>
  CUDAOPS_INLINE T shfl(T value, unsigned rank) const { return cudaops::shuffle(mask_, value, lane_of(rank)); }
  template <class T>
  CUDAOPS_INLINE T shfl_down(T value, unsigned delta) const {
    unsigned rank = thread_rank() + delta;
    return cudaops::shuffle(mask_, value, lane_of(rank < size() ? rank : thread_rank()));
  }
  template <class T>
  CUDAOPS_INLINE T shfl_up(T value, unsigned delta) const {
    unsigned rank = thread_rank();
    return cudaops::shuffle(mask_, value, lane_of(rank >= delta ? rank - delta : rank));
  }
  template <class T>
  CUDAOPS_INLINE T shfl_xor(T value, unsigned bits) const {
    unsigned rank = thread_rank() ^ bits;
    return cudaops::shuffle(mask_, value, lane_of(rank < size() ? rank : thread_rank()));
  }
  CUDAOPS_INLINE int any(int predicate) const { return __any_sync(mask_, predicate); }
  CUDAOPS_INLINE int all(int predicate) const { return __all_sync(mask_, predicate); }
  CUDAOPS_INLINE unsigned ballot(int predicate) const { return packed(__ballot_sync(mask_, predicate)); }
  template <class T>
  CUDAOPS_INLINE unsigned match_any(T value) const { return packed(__match_any_sync(mask_, value)); }
  template <class T>
  CUDAOPS_INLINE unsigned match_all(T value, int& predicate) const {
    return packed(__match_all_sync(mask_, value, &predicate));
  }
  unsigned mask() const { return mask_; }

 private:
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    for (unsigned i = 0; i < rank && left; ++i) left &= left - 1;
    return left ? __builtin_ctz(left) : cudaops::lane();
  }
  unsigned packed(unsigned votes) const {
    unsigned result = 0, rank = 0;
    for (unsigned left = mask_; left; left &= left - 1, ++rank)
      if (votes & (left & -left)) result |= 1u << rank;
    return result;
  }
};

// A tile's ranks are lanes side by side: its methods are one instruction each, as on a GPU.
template <unsigned Size, class Parent = void>
class thread_block_tile : public lane_group {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads here");

 public:
  thread_block_tile(unsigned part, unsigned parts)
      : lane_group((Size == 32 ? ~0u : (1u << (Size & 31)) - 1) << (cudaops::lane() & ~(Size - 1)), part, parts) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>& tile)
      : thread_block_tile(tile.meta_group_rank(), tile.meta_group_size()) {}
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return cudaops::lane() & (Size - 1); }
  template <class T>
  CUDAOPS_INLINE T shfl(T value, unsigned rank) const { return __shfl_sync(mask(), value, rank, Size); }
  template <class T>
  CUDAOPS_INLINE T shfl_down(T value, unsigned delta) const { return __shfl_down_sync(mask(), value, delta, Size); }
  template <class T>
  CUDAOPS_INLINE T shfl_up(T value, unsigned delta) const { return __shfl_up_sync(mask(), value, delta, Size); }
  template <class T>
  CUDAOPS_INLINE T shfl_xor(T value, unsigned bits) const { return __shfl_xor_sync(mask(), value, bits, Size); }
  CUDAOPS_INLINE unsigned ballot(int predicate) const {
    return __ballot_sync(mask(), predicate) >> (cudaops::lane() & ~(Size - 1));
  }
};
using coalesced_group = lane_group;

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
  return thread_block_tile<Size, Parent>(parent.thread_rank() / Size, (parent.size() + Size - 1) / Size);
}
inline thread_block_tile<1> this_thread() { return thread_block_tile<1>(0, 1); }
CUDAOPS_INLINE coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// Of a size that is known when it runs: ranks side by side, the last part as large as what is left.
inline void require_tile(unsigned size) {
  if (size == 0 || size > 32 || (size & (size - 1))) __trap();
}
inline coalesced_group tiled_partition(const lane_group& group, unsigned size) {
  require_tile(size);
  unsigned part = group.thread_rank() / size, mask = 0, rank = 0;
  for (unsigned left = group.mask(); left; left &= left - 1, ++rank)
    if (rank / size == part) mask |= left & -left;
  return coalesced_group(mask, part, (group.size() + size - 1) / size);
}
inline thread_group tiled_partition(const thread_block&, unsigned size) {
  require_tile(size);
  unsigned part = thread_block::thread_rank() / size, left = thread_block::size() - part * size;
  unsigned threads = left < size ? left : size;
  return coalesced_group((~0u >> (32 - threads)) << (cudaops::lane() & ~(size - 1)), part,
                         (thread_block::size() + size - 1) / size);
}
inline thread_group tiled_partition(const thread_group& group, unsigned size) {
  if (group.kind_ == thread_group::kind::lanes) return tiled_partition(coalesced_group(group.mask_), size);
  return tiled_partition(thread_block(), size);
}

CUDAOPS_INLINE coalesced_group binary_partition(const lane_group& group, bool side) {
  unsigned chosen = __ballot_sync(group.mask(), side);
  if (chosen == group.mask() || chosen == 0) return coalesced_group(group.mask());
  return coalesced_group(group.mask() & (side ? chosen : ~chosen), side, 2);
}
template <class Label>
CUDAOPS_INLINE coalesced_group labeled_partition(const lane_group& group, Label label) {
  unsigned same = __match_any_sync(group.mask(), label), first = __builtin_ctz(same);
  unsigned firsts = __ballot_sync(group.mask(), first == cudaops::lane());
  return coalesced_group(same, __builtin_popcount(firsts & ((1u << first) - 1)), __builtin_popcount(firsts));
}
CUDAOPS_INLINE coalesced_group labeled_partition(const lane_group& group, bool label) {
  return binary_partition(group, label);
}

CUDAOPS_INLINE void thread_group::sync() const {
  switch (kind_) {
    case kind::block: return thread_block::sync();
    case kind::cluster: return cluster_group::sync();
    case kind::grid: return grid_group::sync();
    case kind::lanes: return __syncwarp(mask_);
  }
}
inline unsigned long long thread_group::size() const {
  switch (kind_) {
    case kind::block: return thread_block::size();
    case kind::cluster: return cluster_group::size();
    case kind::grid: return grid_group::size();
    case kind::lanes: return __builtin_popcount(mask_);
  }
  __builtin_unreachable();
}
inline unsigned long long thread_group::thread_rank() const {
  switch (kind_) {
    case kind::block: return thread_block::thread_rank();
    case kind::cluster: return cluster_group::thread_rank();
    case kind::grid: return grid_group::thread_rank();
    case kind::lanes: return coalesced_group(mask_).thread_rank();
  }
  __builtin_unreachable();
}
template <class Group>
CUDAOPS_INLINE void sync(const Group& group) { group.sync(); }
template <class Group>
CUDAOPS_INLINE auto thread_rank(const Group& group) { return group.thread_rank(); }
template <class Group>
CUDAOPS_INLINE auto group_size(const Group& group) { return group.num_threads(); }

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

// Every thread gets the combination of all values: of coalesced threads in rank order, of a tile in the
// five shuffles of a butterfly, as on a GPU.
template <class T, class Combine>
CUDAOPS_INLINE T reduce(const lane_group& group, T value, Combine combine) {
  T result = group.shfl(value, 0);
  for (unsigned rank = 1; rank < group.size(); ++rank) result = combine(result, group.shfl(value, rank));
  return result;
}
template <unsigned Size, class Parent, class T, class Combine>
CUDAOPS_INLINE T reduce(const thread_block_tile<Size, Parent>& tile, T value, Combine combine) {
  for (unsigned apart = Size / 2; apart > 0; apart /= 2) value = combine(value, tile.shfl_xor(value, apart));
  return value;
}

}  // namespace cooperative_groups
#include "cudaops/macros_on.h"
