// cuda_fp8.h: eight bits of storage, converted with rounding to nearest even and saturation to the
// largest finite value, as CUDA's constructors do. These types have no arithmetic of their own.
#pragma once
#include "macros_off.h"
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "cudaops/bfloat16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace cudaops {

// OCP 8-bit Floating Point Specification 1.0: E4M3 has no infinity and one NaN, E5M2 both as IEEE has.
struct Fp8Format {
  int fraction_bits, bias;
  double largest;
  unsigned char largest_bits, beyond;  // beyond: what does not fit, unsaturated
};
static inline Fp8Format fp8_format(__nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? Fp8Format{3, 7, 448.0, 0x7e, 0x7f} : Fp8Format{2, 15, 57344.0, 0x7b, 0x7c};
}

static inline unsigned char fp8_bits(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  Fp8Format f = fp8_format(kind);
  unsigned char sign = std::signbit(x) ? 0x80 : 0;
  if (x != x) return 0x7f;
  double magnitude = std::fabs(x);
  int exponent = std::isinf(magnitude) || magnitude == 0 ? 1 - f.bias : std::max(std::ilogb(magnitude), 1 - f.bias);
  double units = std::nearbyint(std::ldexp(magnitude, f.fraction_bits - exponent));
  if (!(std::ldexp(units, exponent - f.fraction_bits) <= f.largest))
    return sign | (saturate == __NV_SATFINITE ? f.largest_bits : f.beyond);
  // Subnormals count from 0; a carry out of the fraction lands in the exponent by itself.
  int one = 1 << f.fraction_bits;
  return (unsigned char)(sign | ((int)units < one ? (int)units : ((exponent + f.bias - 1) << f.fraction_bits) + (int)units));
}

static inline float fp8_value(unsigned char bits, __nv_fp8_interpretation_t kind) {
  Fp8Format f = fp8_format(kind);
  int magnitude = bits & 0x7f, exponent = magnitude >> f.fraction_bits, fraction = magnitude & ((1 << f.fraction_bits) - 1);
  float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (kind == __NV_E4M3 ? magnitude == 0x7f : magnitude > 0x7c) return __builtin_nanf("");
  if (kind == __NV_E5M2 && magnitude == 0x7c) return sign * __builtin_inff();
  if (!exponent) return sign * std::ldexp((float)fraction, 1 - f.bias - f.fraction_bits);
  return sign * std::ldexp((float)(fraction | 1 << f.fraction_bits), exponent - f.bias - f.fraction_bits);
}

// The first in the lowest bits.
static inline unsigned fp8_pack(__nv_fp8_interpretation_t kind, std::initializer_list<double> values) {
  unsigned bits = 0, at = 0;
  for (double x : values) bits |= (unsigned)fp8_bits(x, __NV_SATFINITE, kind) << at, at += 8;
  return bits;
}

}  // namespace cudaops

static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return cudaops::fp8_bits(x, s, k);
}
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return cudaops::fp8_bits(x, s, k);
}
static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return (__nv_fp8x2_storage_t)(cudaops::fp8_bits(x.x, s, k) | cudaops::fp8_bits(x.y, s, k) << 8);
}

#define CUDAOPS_FP8(kind, name)                                                                     \
  struct alignas(1) __nv_fp8_##name {                                                               \
    __nv_fp8_storage_t __x;                                                                         \
    __nv_fp8_##name() = default;                                                                    \
    template <class N, class = std::enable_if_t<std::is_arithmetic<N>::value>>                      \
    explicit __nv_fp8_##name(N x)                                                                   \
        : __x(cudaops::fp8_bits(std::is_same<N, double>::value ? (double)x : (double)(float)x, __NV_SATFINITE, kind)) {} \
    explicit __nv_fp8_##name(__half x) : __nv_fp8_##name((double)x) {}                              \
    explicit __nv_fp8_##name(__nv_bfloat16 x) : __nv_fp8_##name((double)x) {}                       \
    template <class N, class = std::enable_if_t<std::is_arithmetic<N>::value>>                      \
    explicit operator N() const { return (N)cudaops::fp8_value(__x, kind); }                        \
    explicit operator __half() const { return __half(cudaops::fp8_value(__x, kind)); }              \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(cudaops::fp8_value(__x, kind)); } \
  };                                                                                                \
  struct alignas(2) __nv_fp8x2_##name {                                                             \
    __nv_fp8x2_storage_t __x;                                                                       \
    __nv_fp8x2_##name() = default;                                                                  \
    template <class V> explicit __nv_fp8x2_##name(V v)                                              \
        : __x((__nv_fp8x2_storage_t)cudaops::fp8_pack(kind, {(double)v.x, (double)v.y})) {}         \
    explicit operator float2() const { return float2{at(0), at(1)}; }                               \
    explicit operator __half2() const { return __half2(__half(at(0)), __half(at(1))); }             \
                                                                                                    \
   private:                                                                                         \
    float at(int i) const { return cudaops::fp8_value((unsigned char)(__x >> 8 * i), kind); }       \
  };                                                                                                \
  struct alignas(4) __nv_fp8x4_##name {                                                             \
    __nv_fp8x4_storage_t __x;                                                                       \
    __nv_fp8x4_##name() = default;                                                                  \
    template <class V> explicit __nv_fp8x4_##name(V v)                                              \
        : __x(cudaops::fp8_pack(kind, {(double)v.x, (double)v.y, (double)v.z, (double)v.w})) {}     \
    template <class P> explicit __nv_fp8x4_##name(P low, P high)                                    \
        : __x(cudaops::fp8_pack(kind, {(double)low.x, (double)low.y, (double)high.x, (double)high.y})) {} \
    explicit operator float4() const { return float4{at(0), at(1), at(2), at(3)}; }                 \
                                                                                                    \
   private:                                                                                         \
    float at(int i) const { return cudaops::fp8_value((unsigned char)(__x >> 8 * i), kind); }       \
  };
CUDAOPS_FP8(__NV_E4M3, e4m3)
CUDAOPS_FP8(__NV_E5M2, e5m2)
#undef CUDAOPS_FP8
#include "macros_on.h"
