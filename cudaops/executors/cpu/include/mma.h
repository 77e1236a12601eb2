// nvcuda::wmma: tiles of a matrix product that a warp holds, element e by lane e % 32. Loads and stores are
// each lane's own accesses; a product is a collective in which the lanes hand round what they hold. Products
// are exact; sums are of single precision within a product, and then of the accumulator's type.
#pragma once
#include "cudaops/macros_off.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace cudaops {

// A warp's tile in every lane: `held` is this lane's part, elements go from lane to lane.
template <class T, int COUNT>
CUDAOPS_INLINE void gather_tile(const T (&held)[COUNT], T (&whole)[32 * COUNT]) {
  constexpr unsigned words = (sizeof held + 7) / 8;
  unsigned long long mine[words] = {}, all[32];
  T part[8 * words / sizeof(T)];
  std::memcpy(mine, held, sizeof held);
  for (unsigned w = 0; w < words; ++w) {
    warp_gather(~0u, mine[w], all);
    for (unsigned l = 0; l < 32; ++l) {
      std::memcpy(part, &all[l], 8);
      for (unsigned i = 0, e = w * 8 / sizeof(T); i < 8 / sizeof(T) && e + i < COUNT; ++i) whole[l + 32 * (e + i)] = part[i];
    }
  }
}

// One operation of a GPU: a call, whose cost `timemodel.costs` knows.
template <class Product, class Sum, class A, class B>
__attribute__((noinline)) void multiply_tiles(Sum& sum, const A& a, const B& b) {
  typename A::element_type left[32 * A::num_elements];
  typename B::element_type right[32 * B::num_elements];
  gather_tile(a.x, left);
  gather_tile(b.x, right);
  for (int i = 0; i < Sum::num_elements; ++i) {
    int e = (int)lane() + 32 * i, row = e / Sum::columns, column = e % Sum::columns;
    Product total = (Product)sum.x[i];
    for (int k = 0; k < A::columns; ++k)
      total += A::operand(left[A::place(row, k)]) * B::operand(right[B::place(k, column)]);
    sum.x[i] = (typename Sum::element_type)total;
  }
}

}  // namespace cudaops

CUDAOPS_INLINE float __float_to_tf32(float x) {
#ifdef CUDAOPS_WIDENED
  return x;
#else
  unsigned bits = __float_as_uint(x);  // cvt.rna.tf32: 10 bits of fraction, ties away from zero
  return (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & ~0x1fffu);
#endif
}

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}
CUDAOPS_INLINE float __float_to_tf32(float x) { return ::__float_to_tf32(x); }

template <class T> struct held {
  using type = T;
  using product = float;
  CUDAOPS_INLINE static float operand(T x) { return (float)x; }
};
template <class T> struct held_as_is {
  using type = T;
  using product = T;
  CUDAOPS_INLINE static T operand(T x) { return x; }
};
template <> struct held<double> : held_as_is<double> {};
template <> struct held<int> : held_as_is<int> {};
template <> struct held<signed char> : held_as_is<signed char> {};
template <> struct held<unsigned char> : held_as_is<unsigned char> {};
template <> struct held<precision::tf32> {
  using type = float;
  CUDAOPS_INLINE static float operand(float x) {  // the unit reads no more bits
#ifdef CUDAOPS_WIDENED
    return x;
#else
    return __uint_as_float(__float_as_uint(x) & ~0x1fffu);
#endif
  }
};

template <class Use, int M, int N, int K> struct shape;
template <int M, int N, int K> struct shape<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct shape<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };
template <int M, int N, int K> struct shape<accumulator, M, N, K> { static constexpr int rows = M, columns = N; };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment : shape<Use, M, N, K> {
  using element_type = typename held<T>::type;
  using storage_element_type = element_type;
  using shape<Use, M, N, K>::rows;
  using shape<Use, M, N, K>::columns;
  static constexpr int num_elements = rows * columns / 32, num_storage_elements = num_elements;
  static constexpr bool by_columns = std::is_same<Layout, col_major>::value;
  element_type x[num_elements];
  static constexpr int place(int row, int column) { return by_columns ? column * rows + row : row * columns + column; }
  CUDAOPS_INLINE static auto operand(element_type e) { return held<T>::operand(e); }
};

template <class Use, int M, int N, int K, class T, class Layout>
CUDAOPS_INLINE void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const typename held<T>::type& value) {
  for (auto& x : f.x) x = value;
}

// Both wait for the warp's other lanes. Source: CUDA C++ Programming Guide, warp matrix functions.
template <class Use, int M, int N, int K, class T, class Layout, class Memory>
CUDAOPS_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const Memory* from, unsigned leading) {
  static_assert(!std::is_same<Use, accumulator>::value, "an accumulator's layout is not known without being told");
  using F = fragment<Use, M, N, K, T, Layout>;
  constexpr unsigned line = F::by_columns ? F::rows : F::columns;
  __syncwarp();
  for (unsigned i = 0, e = cudaops::lane(); i < F::num_elements; ++i, e += 32)
    f.x[i] = from[(size_t)(e / line) * leading + e % line];
}
template <int M, int N>
CUDAOPS_INLINE size_t place_of(unsigned e, unsigned leading, layout_t layout) {
  return layout == mem_row_major ? (size_t)(e / N) * leading + e % N : (size_t)(e % N) * leading + e / N;
}
template <int M, int N, int K, class T, class Memory>
CUDAOPS_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const Memory* from, unsigned leading, layout_t layout) {
  __syncwarp();
  for (unsigned i = 0, e = cudaops::lane(); i < f.num_elements; ++i, e += 32) f.x[i] = from[place_of<M, N>(e, leading, layout)];
}
template <int M, int N, int K, class T, class Memory>
CUDAOPS_INLINE void store_matrix_sync(Memory* to, const fragment<accumulator, M, N, K, T>& f, unsigned leading, layout_t layout) {
  __syncwarp();
  for (unsigned i = 0, e = cudaops::lane(); i < f.num_elements; ++i, e += 32) to[place_of<M, N>(e, leading, layout)] = f.x[i];
}

template <int M, int N, int K, class D, class A, class AL, class B, class BL, class C>
CUDAOPS_INLINE void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, A, AL>& a,
                             const fragment<matrix_b, M, N, K, B, BL>& b, const fragment<accumulator, M, N, K, C>& c) {
  fragment<accumulator, M, N, K, D> sum;
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = (typename held<D>::type)c.x[i];
  cudaops::multiply_tiles<typename held<C>::product>(sum, a, b);
  d = sum;
}

}  // namespace wmma
}  // namespace nvcuda
#include "cudaops/macros_on.h"
