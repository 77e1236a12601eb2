// inclusive_scan and exclusive_scan over a tile or coalesced threads, in rank order.
#pragma once
#include "../cudaops/macros_off.h"
#include "cooperative_groups.h"

namespace cooperative_groups {

template <class T, class Combine>
CUDAOPS_INLINE T inclusive_scan(const lane_group& group, T value, Combine combine) {
  T result = group.shfl(value, 0);
  for (unsigned rank = 1; rank < group.size(); ++rank) {
    T other = group.shfl(value, rank);
    if (rank <= group.thread_rank()) result = combine(result, other);
  }
  return result;
}
template <unsigned Size, class Parent, class T, class Combine>
CUDAOPS_INLINE T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Combine combine) {
  for (unsigned apart = 1; apart < Size; apart *= 2) {
    T other = tile.shfl_up(value, apart);
    if (tile.thread_rank() >= apart) value = combine(other, value);
  }
  return value;
}
template <class Group, class T, class Combine>
CUDAOPS_INLINE T exclusive_scan(const Group& group, T value, Combine combine) {
  T before = group.shfl_up(inclusive_scan(group, value, combine), 1);
  return group.thread_rank() ? before : T();
}
template <class Group, class T>
CUDAOPS_INLINE T inclusive_scan(const Group& group, T value) { return inclusive_scan(group, value, plus<T>()); }
template <class Group, class T>
CUDAOPS_INLINE T exclusive_scan(const Group& group, T value) { return exclusive_scan(group, value, plus<T>()); }

}  // namespace cooperative_groups
#include "../cudaops/macros_on.h"
