// binary16 and bfloat16 as they are stored: their bits to and from single precision, and how a result
// is rounded to them once.
#pragma once
#include "macros_off.h"
#include <cmath>
#include <cstring>

#define CUDAOPS_NARROW_FN static inline __attribute__((always_inline))

namespace cudaops {

using single = decltype(0.0f);  // also where `float` is a macro that says double

template <class To, class From>
CUDAOPS_NARROW_FN To same_bits(From v) {
  static_assert(sizeof(To) == sizeof(From), "");
  To r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}

constexpr unsigned short narrow_nan = 0x7fff;  // of both formats, whatever NaN went in (PTX ISA, cvt)

// Without a branch, as all that is done to every result: a loop of straight code stays one.
CUDAOPS_NARROW_FN unsigned short or_narrow_nan(unsigned bits, unsigned is_nan) {
  return (unsigned short)((bits | (0u - is_nan)) & (0xffffu >> is_nan));
}

struct Binary16 {
#ifdef __FLT16_MAX__
  CUDAOPS_NARROW_FN unsigned short bits(single x) {
    return or_narrow_nan(same_bits<unsigned short>((_Float16)x), x != x);
  }
  CUDAOPS_NARROW_FN single value(unsigned short bits) { return (single)same_bits<_Float16>(bits); }
#else  // g++ 11: no _Float16 in C++
  static inline unsigned short bits(single x) {
    unsigned bits = same_bits<unsigned>(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return narrow_nan;
    if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // rounds to infinity
    if (magnitude < 0x38800000u)  // subnormal: 2^-24 is one unit
      return (unsigned short)(sign | (unsigned)nearbyint((double)same_bits<single>(magnitude) * 16777216.0));
    unsigned rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);  // to nearest, ties to even
    return (unsigned short)(sign | ((rounded >> 13) - (112u << 10)));
  }
  static inline single value(unsigned short bits) {
    unsigned sign = (unsigned)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    if (exponent == 31) return same_bits<single>(sign | 0x7f800000u | fraction << 13);
    single value = exponent ? same_bits<single>((exponent + 112u) << 23 | fraction << 13) : (single)fraction / (single)16777216;
    return sign ? -value : value;
  }
#endif
};

struct Brain16 {
  CUDAOPS_NARROW_FN unsigned short bits(single x) {
    unsigned bits = same_bits<unsigned>(x);
    return or_narrow_nan((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, x != x);  // to nearest, ties to even
  }
  CUDAOPS_NARROW_FN single value(unsigned short bits) { return same_bits<single>((unsigned)bits << 16); }
};

// Rounding to odd on the way keeps what a second rounding must know: that something was cut off.
// Source: Boldo, Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 57(4), 2008.
CUDAOPS_NARROW_FN single rounded_to_odd(single nearest, double beyond) {
  unsigned bits = same_bits<unsigned>(nearest), up = beyond > 0, cut_off = up | (unsigned)(beyond < 0);
  unsigned step = cut_off & ~bits & 1u, away = up ^ bits >> 31;  // sign and magnitude; a zero has its sign
  return same_bits<single>(bits + (step & away) - (step & ~away));
}
CUDAOPS_NARROW_FN single rounded_to_odd(double x) {
  single nearest = (single)x;
  return rounded_to_odd(nearest, x - (double)nearest);  // infinity that x is not: one below it, odd
}
// `nearest` is a * b + c rounded to single precision. The product is exact in double precision.
CUDAOPS_NARROW_FN single sum_rounded_to_odd(single nearest, single a, single b, single c) {
  double product = (double)a * (double)b, sum = product + (double)c, other = sum - product;
  double cut_off = (product - (sum - other)) + ((double)c - other), beyond = sum - (double)nearest;
  return rounded_to_odd(nearest, beyond + cut_off);  // the first, if any, is at least twice the second
}

}  // namespace cudaops
#include "macros_on.h"
