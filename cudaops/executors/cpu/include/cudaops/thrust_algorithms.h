// Thrust's algorithms, one element after another. A sum of floating values is rounded in that order,
// which on a GPU is another one each time. What sorts keeps the order of equal keys.
#pragma once
#include "macros_off.h"
#include <algorithm>
#include <numeric>

#include "cudaops/thrust_iterators.h"

namespace thrust {

// With an execution policy in front, the same without.
#define CUDAOPS_ANYWHERE(name)                                                                         \
  template <class Policy, class... Arguments, class = std::enable_if_t<is_policy<Policy>>>             \
  auto name(const Policy&, Arguments&&... arguments) {                                                 \
    return thrust::name(std::forward<Arguments>(arguments)...);                                        \
  }
// As in the standard library.
#define CUDAOPS_AS_STD(name)                                                                           \
  template <class First, class... Arguments, class = std::enable_if_t<!is_policy<First>>>              \
  auto name(First first, Arguments&&... arguments) {                                                   \
    return std::name(first, std::forward<Arguments>(arguments)...);                                    \
  }                                                                                                    \
  CUDAOPS_ANYWHERE(name)

CUDAOPS_AS_STD(adjacent_difference)
CUDAOPS_AS_STD(all_of)
CUDAOPS_AS_STD(any_of)
CUDAOPS_AS_STD(copy)
CUDAOPS_AS_STD(copy_n)
CUDAOPS_AS_STD(count)
CUDAOPS_AS_STD(count_if)
CUDAOPS_AS_STD(equal)
CUDAOPS_AS_STD(fill)
CUDAOPS_AS_STD(fill_n)
CUDAOPS_AS_STD(find)
CUDAOPS_AS_STD(find_if)
CUDAOPS_AS_STD(find_if_not)
CUDAOPS_AS_STD(generate)
CUDAOPS_AS_STD(generate_n)
CUDAOPS_AS_STD(inner_product)
CUDAOPS_AS_STD(is_partitioned)
CUDAOPS_AS_STD(is_sorted)
CUDAOPS_AS_STD(is_sorted_until)
CUDAOPS_AS_STD(max_element)
CUDAOPS_AS_STD(merge)
CUDAOPS_AS_STD(min_element)
CUDAOPS_AS_STD(minmax_element)
CUDAOPS_AS_STD(mismatch)
CUDAOPS_AS_STD(none_of)
CUDAOPS_AS_STD(partition_copy)
CUDAOPS_AS_STD(partition_point)
CUDAOPS_AS_STD(remove_copy)
CUDAOPS_AS_STD(remove_copy_if)
CUDAOPS_AS_STD(replace)
CUDAOPS_AS_STD(replace_copy)
CUDAOPS_AS_STD(replace_copy_if)
CUDAOPS_AS_STD(reverse)
CUDAOPS_AS_STD(reverse_copy)
CUDAOPS_AS_STD(set_difference)
CUDAOPS_AS_STD(set_intersection)
CUDAOPS_AS_STD(set_symmetric_difference)
CUDAOPS_AS_STD(set_union)
CUDAOPS_AS_STD(swap_ranges)
CUDAOPS_AS_STD(uninitialized_copy)
CUDAOPS_AS_STD(uninitialized_fill)
CUDAOPS_AS_STD(unique_copy)
#undef CUDAOPS_AS_STD

// What lies between two iterators.
template <class It> std::vector<value_of<It>> values_of(It first, It last) { return {first, last}; }

template <class It, class F> It for_each(It first, It last, F f) {
  for (; first != last; ++first) f(*first);
  return first;
}
CUDAOPS_ANYWHERE(for_each)
template <class It, class N, class F> It for_each_n(It first, N count, F f) {
  return thrust::for_each(first, first + (std::ptrdiff_t)count, f);
}
CUDAOPS_ANYWHERE(for_each_n)

template <class It, class T> void sequence(It first, It last, T init) {
  for (; first != last; ++first, ++init) *first = init;
}
template <class It> void sequence(It first, It last) { thrust::sequence(first, last, value_of<It>(0)); }
template <class It, class T> void sequence(It first, It last, T init, T step) {
  for (std::ptrdiff_t i = 0; first != last; ++first, ++i) *first = init + step * (T)i;
}
CUDAOPS_ANYWHERE(sequence)
template <class It, class F> void tabulate(It first, It last, F f) {
  for (std::ptrdiff_t i = 0; first != last; ++first, ++i) *first = f(i);
}
CUDAOPS_ANYWHERE(tabulate)

template <class In, class Out, class F> Out transform(In first, In last, Out out, F f) {
  for (; first != last; ++first, ++out) *out = f(*first);
  return out;
}
template <class In, class In2, class Out, class F> Out transform(In first, In last, In2 other, Out out, F f) {
  for (; first != last; ++first, ++other, ++out) *out = f(*first, *other);
  return out;
}
CUDAOPS_ANYWHERE(transform)
template <class In, class Out, class F, class P> Out transform_if(In first, In last, Out out, F f, P holds) {
  for (; first != last; ++first, ++out)
    if (holds(*first)) *out = f(*first);
  return out;
}
template <class In, class Mask, class Out, class F, class P>
Out transform_if(In first, In last, Mask mask, Out out, F f, P holds) {
  for (; first != last; ++first, ++mask, ++out)
    if (holds(*mask)) *out = f(*first);
  return out;
}
CUDAOPS_ANYWHERE(transform_if)

template <class It, class T, class Op> T reduce(It first, It last, T init, Op op) {
  for (; first != last; ++first) init = op(init, *first);
  return init;
}
template <class It, class T> T reduce(It first, It last, T init) { return thrust::reduce(first, last, init, plus<>()); }
template <class It> value_of<It> reduce(It first, It last) { return thrust::reduce(first, last, value_of<It>()); }
CUDAOPS_ANYWHERE(reduce)
template <class It, class F, class T, class Op> T transform_reduce(It first, It last, F f, T init, Op op) {
  for (; first != last; ++first) init = op(init, f(*first));
  return init;
}
CUDAOPS_ANYWHERE(transform_reduce)

template <class In, class Out, class Op> Out inclusive_scan(In first, In last, Out out, Op op) {
  if (first == last) return out;
  value_of<In> sum = *first;
  for (*out = sum, ++out; ++first != last; ++out) *out = sum = op(sum, *first);
  return out;
}
template <class In, class Out> Out inclusive_scan(In first, In last, Out out) {
  return thrust::inclusive_scan(first, last, out, plus<>());
}
CUDAOPS_ANYWHERE(inclusive_scan)
template <class In, class Out, class T, class Op> Out exclusive_scan(In first, In last, Out out, T sum, Op op) {
  for (; first != last; ++first, ++out) {
    T next = op(sum, *first);  // before the store: often it is in place
    *out = sum, sum = next;
  }
  return out;
}
template <class In, class Out, class T> Out exclusive_scan(In first, In last, Out out, T init) {
  return thrust::exclusive_scan(first, last, out, init, plus<>());
}
template <class In, class Out> Out exclusive_scan(In first, In last, Out out) {
  return thrust::exclusive_scan(first, last, out, value_of<In>());
}
CUDAOPS_ANYWHERE(exclusive_scan)
template <class In, class Out, class F, class Op>
Out transform_inclusive_scan(In first, In last, Out out, F f, Op op) {
  return thrust::inclusive_scan(make_transform_iterator(first, f), make_transform_iterator(last, f), out, op);
}
CUDAOPS_ANYWHERE(transform_inclusive_scan)
template <class In, class Out, class F, class T, class Op>
Out transform_exclusive_scan(In first, In last, Out out, F f, T init, Op op) {
  return thrust::exclusive_scan(make_transform_iterator(first, f), make_transform_iterator(last, f), out, init, op);
}
CUDAOPS_ANYWHERE(transform_exclusive_scan)

template <class Keys, class In, class Out, class Same = equal_to<>, class Op = plus<>>
Out inclusive_scan_by_key(Keys first, Keys last, In in, Out out, Same same = {}, Op op = {}) {
  if (first == last) return out;
  auto key = values_of(first, first + 1)[0];
  value_of<In> sum = *in;
  for (*out = sum, ++out; ++first != last; ++out) {
    value_of<Keys> next = *first;
    ++in;
    *out = sum = same(key, next) ? op(sum, *in) : (value_of<In>)*in;
    key = next;
  }
  return out;
}
CUDAOPS_ANYWHERE(inclusive_scan_by_key)
template <class Keys, class In, class Out, class T, class Same = equal_to<>, class Op = plus<>>
Out exclusive_scan_by_key(Keys first, Keys last, In in, Out out, T init, Same same = {}, Op op = {}) {
  T sum = init;
  for (Keys at = first; at != last; ++at, ++in, ++out) {
    if (at != first && !same(*(at - 1), *at)) sum = init;
    T next = op(sum, *in);
    *out = sum, sum = next;
  }
  return out;
}
template <class Keys, class In, class Out> Out exclusive_scan_by_key(Keys first, Keys last, In in, Out out) {
  return thrust::exclusive_scan_by_key(first, last, in, out, value_of<In>());
}
CUDAOPS_ANYWHERE(exclusive_scan_by_key)

template <class Keys, class In, class KeysOut, class Out, class Same = equal_to<>, class Op = plus<>>
pair<KeysOut, Out> reduce_by_key(Keys first, Keys last, In in, KeysOut keys, Out out, Same same = {}, Op op = {}) {
  while (first != last) {
    value_of<Keys> key = *first;
    value_of<In> sum = *in;
    for (++first, ++in; first != last && same(key, *first); ++first, ++in) sum = op(sum, *in);
    *keys = key, *out = sum;
    ++keys, ++out;
  }
  return {keys, out};
}
CUDAOPS_ANYWHERE(reduce_by_key)

// Elements are copied out and back, so that what an iterator refers to need not be one object.
template <class It, class Less = less<>> void stable_sort(It first, It last, Less before = {}) {
  auto values = values_of(first, last);
  std::stable_sort(values.begin(), values.end(), before);
  std::copy(values.begin(), values.end(), first);
}
CUDAOPS_ANYWHERE(stable_sort)
template <class It, class Less = less<>> void sort(It first, It last, Less before = {}) {
  thrust::stable_sort(first, last, before);
}
CUDAOPS_ANYWHERE(sort)
template <class Keys, class Values, class Less = less<>>
void stable_sort_by_key(Keys first, Keys last, Values values, Less before = {}) {
  auto keys = values_of(first, last);
  auto items = values_of(values, values + (std::ptrdiff_t)keys.size());
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), (size_t)0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(keys[a], keys[b]); });
  for (size_t from : order) *first = keys[from], *values = items[from], ++first, ++values;
}
CUDAOPS_ANYWHERE(stable_sort_by_key)
template <class Keys, class Values, class Less = less<>>
void sort_by_key(Keys first, Keys last, Values values, Less before = {}) {
  thrust::stable_sort_by_key(first, last, values, before);
}
CUDAOPS_ANYWHERE(sort_by_key)

template <class It, class Same = equal_to<>> It unique(It first, It last, Same same = {}) {
  It end = first;
  for (It at = first; at != last; ++at)
    if (end == first || !same(*(end - 1), *at)) *end = (value_of<It>)*at, ++end;
  return end;
}
CUDAOPS_ANYWHERE(unique)
template <class Keys, class Values, class Same = equal_to<>>
pair<Keys, Values> unique_by_key(Keys first, Keys last, Values values, Same same = {}) {
  Keys end = first;
  Values to = values;
  for (Keys at = first; at != last; ++at, ++values)
    if (end == first || !same(*(end - 1), *at)) {
      *end = (value_of<Keys>)*at, *to = (value_of<Values>)*values;
      ++end, ++to;
    }
  return {end, to};
}
CUDAOPS_ANYWHERE(unique_by_key)

template <class In, class Out, class P> Out copy_if(In first, In last, Out out, P holds) {
  for (; first != last; ++first)
    if (holds(*first)) *out = *first, ++out;
  return out;
}
template <class In, class Mask, class Out, class P> Out copy_if(In first, In last, Mask mask, Out out, P holds) {
  for (; first != last; ++first, ++mask)
    if (holds(*mask)) *out = *first, ++out;
  return out;
}
CUDAOPS_ANYWHERE(copy_if)
template <class It, class P> It remove_if(It first, It last, P holds) {
  return thrust::copy_if(first, last, first, not_fn(holds));
}
template <class It, class Mask, class P> It remove_if(It first, It last, Mask mask, P holds) {
  return thrust::copy_if(first, last, mask, first, not_fn(holds));
}
CUDAOPS_ANYWHERE(remove_if)
template <class It, class T> It remove(It first, It last, const T& value) {
  T gone = value;  // it may be one of them
  return thrust::remove_if(first, last, [&](const auto& one) { return one == gone; });
}
CUDAOPS_ANYWHERE(remove)
template <class It, class P> It stable_partition(It first, It last, P holds) {
  auto values = values_of(first, last);
  It middle = thrust::copy_if(values.begin(), values.end(), first, holds);
  thrust::copy_if(values.begin(), values.end(), middle, not_fn(holds));
  return middle;
}
template <class It, class S, class P, class = std::enable_if_t<!is_policy<It>>>
It stable_partition(It first, It last, S stencil, P holds) {
  auto values = values_of(first, last);
  It middle = thrust::copy_if(values.begin(), values.end(), stencil, first, holds);
  thrust::copy_if(values.begin(), values.end(), stencil, middle, not_fn(holds));
  return middle;
}
CUDAOPS_ANYWHERE(stable_partition)
template <class It, class P> It partition(It first, It last, P holds) {
  return thrust::stable_partition(first, last, holds);
}
template <class It, class S, class P, class = std::enable_if_t<!is_policy<It>>>
It partition(It first, It last, S stencil, P holds) {
  return thrust::stable_partition(first, last, stencil, holds);
}
CUDAOPS_ANYWHERE(partition)
template <class It, class P, class T> void replace_if(It first, It last, P holds, const T& value) {
  for (; first != last; ++first)
    if (holds(*first)) *first = value;
}
template <class It, class Mask, class P, class T> void replace_if(It first, It last, Mask mask, P holds, const T& value) {
  for (; first != last; ++first, ++mask)
    if (holds(*mask)) *first = value;
}
CUDAOPS_ANYWHERE(replace_if)

template <class Map, class In, class Out> Out gather(Map first, Map last, In in, Out out) {
  for (; first != last; ++first, ++out) *out = in[(std::ptrdiff_t)*first];
  return out;
}
CUDAOPS_ANYWHERE(gather)
template <class In, class Map, class Out> void scatter(In first, In last, Map map, Out out) {
  for (; first != last; ++first, ++map) out[(std::ptrdiff_t)*map] = *first;
}
CUDAOPS_ANYWHERE(scatter)
template <class In, class Map, class Mask, class Out, class P = identity<>>
void scatter_if(In first, In last, Map map, Mask mask, Out out, P holds = {}) {
  for (; first != last; ++first, ++map, ++mask)
    if (holds(*mask)) out[(std::ptrdiff_t)*map] = *first;
}
CUDAOPS_ANYWHERE(scatter_if)

// Of one value, or of each of several.
#define CUDAOPS_SEARCH(name, found)                                                                    \
  template <class It, class T> auto name(It first, It last, const T& value) {                          \
    auto at = std::name(first, last, value);                                                           \
    return found;                                                                                      \
  }                                                                                                    \
  template <class It, class T, class Less, class = std::enable_if_t<!std::is_convertible<Less, T>::value>> \
  auto name(It first, It last, const T& value, Less before) {                                          \
    auto at = std::name(first, last, value, before);                                                   \
    return found;                                                                                      \
  }                                                                                                    \
  template <class It, class In, class Out, class Less = less<>>                                        \
  Out name(It first, It last, In in, In in_last, Out out, Less before = {}) {                          \
    for (; in != in_last; ++in, ++out) {                                                               \
      auto at = std::name(first, last, (value_of<In>)*in, before);                                     \
      *out = name##_place(at, first);                                                                  \
    }                                                                                                  \
    return out;                                                                                        \
  }                                                                                                    \
  CUDAOPS_ANYWHERE(name)
template <class It> std::ptrdiff_t lower_bound_place(It at, It first) { return at - first; }
template <class It> std::ptrdiff_t upper_bound_place(It at, It first) { return at - first; }
template <class It> bool binary_search_place(bool found, It) { return found; }
CUDAOPS_SEARCH(lower_bound, at)
CUDAOPS_SEARCH(upper_bound, at)
CUDAOPS_SEARCH(binary_search, at)
#undef CUDAOPS_SEARCH
#undef CUDAOPS_ANYWHERE

}  // namespace thrust
#include "macros_on.h"
