// CUB's device-wide reductions, scans, sorts and selections, computed where they are called: every stream
// lies in one memory. A sum of floating values adds halves of the sequence to each other.
#pragma once
#include "macros_off.h"
#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "cudaops/cub.h"

namespace cub {

template <class Key, class Value>
struct KeyValuePair { Key key; Value value; };
template <class T>
struct DoubleBuffer {
  T* d_buffers[2] = {nullptr, nullptr};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

namespace detail {

// Whether only the size of the temporary memory is asked for.
inline bool is_asked(void* temporary, size_t& bytes) {
  if (temporary == nullptr) bytes = 1;
  return temporary == nullptr;
}
inline cudaError_t done() {
  cudaops::touch();
  return cudaSuccess;
}
template <class Iterator>
using value_of = std::remove_cv_t<std::remove_reference_t<decltype(*std::declval<Iterator>())>>;

template <class T, class In, class Op>
T reduced(In in, long long count, Op op) {
  if (count > 32) return op(reduced<T>(in, count / 2, op), reduced<T>(in + count / 2, count - count / 2, op));
  T sum = in[0];
  for (long long i = 1; i < count; ++i) sum = op(sum, in[i]);
  return sum;
}

// A key as bits that are ordered as it is.
template <class Key>
unsigned long long ordered_bits(Key key) {
  unsigned long long bits = 0, sign = 1ull << (sizeof(Key) * 8 - 1), all = sign | (sign - 1);
  std::memcpy(&bits, &key, sizeof(Key));
  if (std::is_integral<Key>::value) return std::is_signed<Key>::value ? bits ^ sign : bits;
  return bits & sign ? ~bits & all : bits | sign;
}
// Places of the keys in their order by the bits from `first` until `end`. Equal ones keep theirs.
template <class Key>
std::vector<size_t> sorted_places(const Key* keys, size_t count, int first, int end, bool descending) {
  unsigned long long mask = end - first >= 64 ? ~0ull : (1ull << (end - first)) - 1;
  std::vector<unsigned long long> bits(count);
  std::vector<size_t> places(count);
  for (size_t i = 0; i < count; ++i) bits[i] = ordered_bits(keys[i]) >> first & mask, places[i] = i;
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    return descending ? bits[b] < bits[a] : bits[a] < bits[b];
  });
  return places;
}
template <class T>
void place(const T* in, T* out, const std::vector<size_t>& places) {
  std::vector<T> held(in, in + places.size());
  for (size_t i = 0; i < places.size(); ++i) out[i] = held[places[i]];
}

}  // namespace detail

struct DeviceReduce {
  template <class In, class Out, class Op, class T>
  static cudaError_t Reduce(void* temporary, size_t& bytes, In in, Out out, long long count, Op op, T initial,
                            cudaStream_t = 0) {
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;
    *out = count > 0 ? op(initial, detail::reduced<T>(in, count, op)) : initial;
    return detail::done();
  }
  template <class In, class Out>
  static cudaError_t Sum(void* temporary, size_t& bytes, In in, Out out, long long count, cudaStream_t = 0) {
    return Reduce(temporary, bytes, in, out, count, cub::Sum(), detail::value_of<In>());
  }
  template <class In, class Out>
  static cudaError_t Min(void* temporary, size_t& bytes, In in, Out out, long long count, cudaStream_t = 0) {
    using T = detail::value_of<In>;
    return Reduce(temporary, bytes, in, out, count, cub::Min(), std::numeric_limits<T>::max());
  }
  template <class In, class Out>
  static cudaError_t Max(void* temporary, size_t& bytes, In in, Out out, long long count, cudaStream_t = 0) {
    using T = detail::value_of<In>;
    return Reduce(temporary, bytes, in, out, count, cub::Max(), std::numeric_limits<T>::lowest());
  }
};

struct DeviceScan {
  template <class In, class Out, class Op>
  static cudaError_t InclusiveScan(void* temporary, size_t& bytes, In in, Out out, Op op, long long count,
                                   cudaStream_t = 0) {
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;
    detail::value_of<In> sum{};
    for (long long i = 0; i < count; ++i) out[i] = sum = i == 0 ? in[i] : op(sum, in[i]);
    return detail::done();
  }
  template <class In, class Out, class Op, class T>
  static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, In in, Out out, Op op, T initial, long long count,
                                   cudaStream_t = 0) {
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;
    for (long long i = 0; i < count; ++i) {
      T next = op(initial, in[i]);  // `out` may be `in`
      out[i] = initial;
      initial = next;
    }
    return detail::done();
  }
  template <class In, class Out>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, In in, Out out, long long count, cudaStream_t = 0) {
    return InclusiveScan(temporary, bytes, in, out, cub::Sum(), count);
  }
  template <class In, class Out>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, In in, Out out, long long count, cudaStream_t = 0) {
    return ExclusiveScan(temporary, bytes, in, out, cub::Sum(), detail::value_of<In>(), count);
  }
};

struct DeviceRadixSort {
#define CUDAOPS_SORT(suffix, descending)                                                                            \
  template <class K>                                                                                                \
  static cudaError_t SortKeys##suffix(void* temporary, size_t& bytes, const K* in, K* out, long long count,         \
                                      int first = 0, int end = sizeof(K) * 8, cudaStream_t = 0) {                   \
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;                                                     \
    detail::place(in, out, detail::sorted_places(in, (size_t)count, first, end, descending));                       \
    return detail::done();                                                                                          \
  }                                                                                                                 \
  template <class K>                                                                                                \
  static cudaError_t SortKeys##suffix(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, long long count,       \
                                      int first = 0, int end = sizeof(K) * 8, cudaStream_t = 0) {                   \
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;                                                     \
    SortKeys##suffix(temporary, bytes, keys.Current(), keys.Alternate(), count, first, end);                        \
    keys.selector ^= 1;                                                                                             \
    return cudaSuccess;                                                                                             \
  }                                                                                                                 \
  template <class K, class V>                                                                                       \
  static cudaError_t SortPairs##suffix(void* temporary, size_t& bytes, const K* in, K* out, const V* values,        \
                                       V* sorted, long long count, int first = 0, int end = sizeof(K) * 8,          \
                                       cudaStream_t = 0) {                                                          \
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;                                                     \
    std::vector<size_t> places = detail::sorted_places(in, (size_t)count, first, end, descending);                  \
    detail::place(in, out, places);                                                                                 \
    detail::place(values, sorted, places);                                                                          \
    return detail::done();                                                                                          \
  }                                                                                                                 \
  template <class K, class V>                                                                                       \
  static cudaError_t SortPairs##suffix(void* temporary, size_t& bytes, DoubleBuffer<K>& keys,                       \
                                       DoubleBuffer<V>& values, long long count, int first = 0,                     \
                                       int end = sizeof(K) * 8, cudaStream_t = 0) {                                 \
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;                                                     \
    SortPairs##suffix(temporary, bytes, keys.Current(), keys.Alternate(), values.Current(), values.Alternate(),     \
                      count, first, end);                                                                           \
    keys.selector ^= 1, values.selector ^= 1;                                                                       \
    return cudaSuccess;                                                                                             \
  }
  CUDAOPS_SORT(, false)
  CUDAOPS_SORT(Descending, true)
#undef CUDAOPS_SORT
};

struct DeviceSelect {
  template <class In, class Flags, class Out, class Count>
  static cudaError_t Flagged(void* temporary, size_t& bytes, In in, Flags flags, Out out, Count selected,
                             long long count, cudaStream_t = 0) {
    return select(temporary, bytes, in, out, selected, count, [=](long long i) { return (bool)flags[i]; });
  }
  template <class In, class Out, class Count, class Op>
  static cudaError_t If(void* temporary, size_t& bytes, In in, Out out, Count selected, long long count, Op op,
                        cudaStream_t = 0) {
    return select(temporary, bytes, in, out, selected, count, [=](long long i) { return (bool)op(in[i]); });
  }
  template <class In, class Out, class Count>
  static cudaError_t Unique(void* temporary, size_t& bytes, In in, Out out, Count selected, long long count,
                            cudaStream_t = 0) {
    return select(temporary, bytes, in, out, selected, count,
                  [=](long long i) { return i == 0 || !(in[i] == in[i - 1]); });
  }

 private:
  template <class In, class Out, class Count, class Wanted>
  static cudaError_t select(void* temporary, size_t& bytes, In in, Out out, Count selected, long long count,
                            Wanted wanted) {
    if (detail::is_asked(temporary, bytes)) return cudaSuccess;
    std::vector<detail::value_of<In>> found;
    for (long long i = 0; i < count; ++i)
      if (wanted(i)) found.push_back(in[i]);
    std::copy(found.begin(), found.end(), out);
    *selected = (detail::value_of<Count>)found.size();
    return detail::done();
  }
};

}  // namespace cub
#include "macros_on.h"
