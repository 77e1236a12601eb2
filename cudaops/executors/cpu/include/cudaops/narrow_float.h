// Numbers of 16 bits: how binary16 and bfloat16 are stored, and how a result is rounded to them. On a
// GPU this is part of the instruction (or one `cvt`), so the time model counts nothing here.
// Under CUDAOPS_WIDENED both hold a double: the accuracy yardstick knows nothing narrower.
#pragma once
#include "macros_off.h"
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cudaops/cuda.h"
#include "cudaops/narrow_formats.h"

// What `narrow_type.h` and `narrow_math.h` ask of the executor that includes them.
#define CUDAOPS_API static inline
#define CUDAOPS_MEMBER
#define CUDAOPS_IF_ARITHMETIC(N) std::enable_if_t<std::is_arithmetic<N>::value>
#define CUDAOPS_IF_INTEGRAL(N) std::enable_if_t<std::is_integral<N>::value>

namespace cudaops {

template <class N>
CUDAOPS_NARROW_FN double exact_or_odd(N x) {
  if constexpr (std::is_integral<N>::value && sizeof(N) == 8) {
    bool negative = x < (N)0;
    std::uint64_t magnitude = negative ? 0 - (std::uint64_t)x : (std::uint64_t)x;
    if (magnitude >> 53) {  // 53 bits, the last of them odd where bits were cut off
      double cut = (double)(magnitude >> 11 | ((magnitude & 2047u) != 0)) * 2048.0;
      return negative ? -cut : cut;
    }
  }
  return (double)x;
}

enum class Rounding { Nearest, Zero, Down, Up };

// Any number to 16 bits, rounded once.
template <class Format, Rounding mode, class N>
CUDAOPS_NARROW_FN unsigned short rounded_bits(N number) {
  double x = exact_or_odd(number);
  unsigned short bits = Format::bits(rounded_to_odd(x));
  double got = (double)Format::value(bits);
  if constexpr (mode == Rounding::Zero) bits -= x < 0 ? got < x : got > x;  // sign and magnitude
  if constexpr (mode == Rounding::Down)
    if (got > x) bits = got > 0 ? bits - 1 : (bits | 0x8000u) + 1;
  if constexpr (mode == Rounding::Up)
    if (got < x) bits = got < 0 ? bits - 1 : (bits & 0x7fffu) + 1;
  return bits;
}

#ifdef CUDAOPS_WIDENED
template <class Format> using narrow_storage = double;
template <class Format> CUDAOPS_NARROW_FN double pack(double x) { return x; }
template <class Format> CUDAOPS_NARROW_FN double unpack(double x) { return x; }
template <class Format, Rounding mode, class N> CUDAOPS_NARROW_FN double pack_rounded(N x) { return (double)x; }
template <class Format> CUDAOPS_NARROW_FN unsigned short narrow_bits(double x) {
  return rounded_bits<Format, Rounding::Nearest>(x);
}
template <class Format> CUDAOPS_NARROW_FN double from_narrow_bits(unsigned short bits) { return (double)Format::value(bits); }
CUDAOPS_NARROW_FN double fused_once(double sum, double, double, double) { return sum; }
#else
template <class Format> using narrow_storage = unsigned short;
template <class Format> CUDAOPS_NARROW_FN unsigned short pack(single x) { return Format::bits(x); }
template <class Format> CUDAOPS_NARROW_FN single unpack(unsigned short bits) { return Format::value(bits); }
template <class Format, Rounding mode, class N> CUDAOPS_NARROW_FN unsigned short pack_rounded(N x) {
  return rounded_bits<Format, mode>(x);
}
template <class Format> CUDAOPS_NARROW_FN unsigned short narrow_bits(unsigned short bits) { return bits; }
template <class Format> CUDAOPS_NARROW_FN unsigned short from_narrow_bits(unsigned short bits) { return bits; }
CUDAOPS_NARROW_FN single fused_once(single sum, single a, single b, single c) { return sum_rounded_to_odd(sum, a, b, c); }
#endif

// What fmax and fmin need not know: -0 is less than +0, and a signalling NaN is no number either.
template <class F>
CUDAOPS_NARROW_FN F larger_number(F a, F b, F larger) {
  return a == 0 && b == 0 ? a + b : larger != larger ? (a != a ? b : a) : larger;
}
template <class F>
CUDAOPS_NARROW_FN F smaller_number(F a, F b, F smaller) {
  return a == 0 && b == 0 ? -(-a + -b) : smaller != smaller ? (a != a ? b : a) : smaller;
}

// Toward zero, saturating; `bool` asks whether it is not zero.
template <class N, class F>
CUDAOPS_NARROW_FN N to_integer(F x) {
  if constexpr (std::is_same<N, bool>::value)
    return x != 0;
  else
    return saturating<N>(x);
}

// Two of them at once; what does not fit an atomic operation is added element by element, which is
// all that CUDA promises of a pair.
template <class P>
CUDAOPS_NARROW_FN P atomic_add_pair(P* address, P value) {
  if constexpr (sizeof(P) <= 8)
    return atomic_update(address, [value](P old) { return P(old.x + value.x, old.y + value.y); });
  else
    return P(atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y));
}

}  // namespace cudaops

#ifdef CUDAOPS_WIDENED
#define CUDAOPS_STORED_AS(text) "f64"
#else
#define CUDAOPS_STORED_AS(text) text
#endif
// What an executor adds to a type and its pairs: here how a buffer is recorded, and atomic operations.
#define CUDAOPS_MACHINE(T, P, text)                                                                                 \
  namespace cudaops {                                                                                               \
  template <> struct element<T, void> { static constexpr const char* name = CUDAOPS_STORED_AS(text); };             \
  template <> struct element<P, void> { static constexpr const char* name = CUDAOPS_STORED_AS(text); };             \
  }                                                                                                                 \
  CUDAOPS_ATOMIC inline T atomicAdd(T* p, T v) {                                                                    \
    return cudaops::atomic_update(p, [v](T o) { return o + v; });                                                   \
  }                                                                                                                 \
  CUDAOPS_ATOMIC inline P atomicAdd(P* p, P v) { return cudaops::atomic_add_pair(p, v); }
#include "macros_on.h"
