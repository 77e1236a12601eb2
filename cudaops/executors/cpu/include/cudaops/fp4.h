// cuda_fp4.h: E2M1 in four bits of storage, saturated to 6 and without infinity or NaN (OCP Microscaling
// Formats Specification 1.0); NaN becomes 6, as CUDA's header has it. These types have no arithmetic.
#pragma once
#include "macros_off.h"
#include "cudaops/fp8.h"

typedef __nv_fp8_storage_t __nv_fp4_storage_t;
typedef __nv_fp8_storage_t __nv_fp4x2_storage_t;
typedef __nv_fp8x2_storage_t __nv_fp4x4_storage_t;
enum __nv_fp4_interpretation_t { __NV_E2M1 };
enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

namespace cudaops {

static inline unsigned char fp4_bits(double x, cudaRoundMode rounding = cudaRoundNearest) {
  if (x != x) return 7;
  unsigned char sign = std::signbit(x) ? 8 : 0;
  double magnitude = std::min(std::fabs(x), 6.0);
  int exponent = magnitude < 1 ? 0 : std::ilogb(magnitude);  // below 1 numbers are half a unit apart, too
  double halves = std::ldexp(magnitude, 1 - exponent);
  int units = (int)(rounding == cudaRoundZero ? std::trunc(halves) : std::nearbyint(halves));
  // A carry out of the fraction lands in the exponent by itself; below 1 the count is the bits.
  return (unsigned char)(sign | (magnitude < 1 ? units : exponent * 2 + units));
}

static inline float fp4_value(unsigned char bits) {
  static constexpr float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return bits & 8 ? -values[bits & 7] : values[bits & 7];
}

// The first in the lowest bits.
static inline unsigned fp4_pack(std::initializer_list<double> values, cudaRoundMode rounding = cudaRoundNearest) {
  unsigned bits = 0, at = 0;
  for (double x : values) bits |= (unsigned)fp4_bits(x, rounding) << at, at += 4;
  return bits;
}

}  // namespace cudaops

#define CUDAOPS_TO_FP4(name, type, value)                                                                       \
  static inline __nv_fp4_storage_t __nv_cvt_##name##_to_fp4(type x, __nv_fp4_interpretation_t, cudaRoundMode r) { \
    return cudaops::fp4_bits(value, r);                                                                         \
  }
#define CUDAOPS_TO_FP4X2(name, type, first, second)                                                                 \
  static inline __nv_fp4x2_storage_t __nv_cvt_##name##_to_fp4x2(type x, __nv_fp4_interpretation_t, cudaRoundMode r) { \
    return (__nv_fp4x2_storage_t)cudaops::fp4_pack({(double)(first), (double)(second)}, r);                         \
  }
CUDAOPS_TO_FP4(double, double, x)
CUDAOPS_TO_FP4(float, float, x)
CUDAOPS_TO_FP4(halfraw, __half_raw, (float)__half(x))
CUDAOPS_TO_FP4(bfloat16raw, __nv_bfloat16_raw, (float)__nv_bfloat16(x))
CUDAOPS_TO_FP4X2(double2, double2, x.x, x.y)
CUDAOPS_TO_FP4X2(float2, float2, x.x, x.y)
CUDAOPS_TO_FP4X2(halfraw2, __half2_raw, (float)__half2(x).x, (float)__half2(x).y)
CUDAOPS_TO_FP4X2(bfloat16raw2, __nv_bfloat162_raw, (float)__nv_bfloat162(x).x, (float)__nv_bfloat162(x).y)
#undef CUDAOPS_TO_FP4
#undef CUDAOPS_TO_FP4X2

static inline __half_raw __nv_cvt_fp4_to_halfraw(__nv_fp4_storage_t x, __nv_fp4_interpretation_t) {
  return __half(cudaops::fp4_value(x));
}
static inline __half2_raw __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t x, __nv_fp4_interpretation_t) {
  return __half2(__half(cudaops::fp4_value(x)), __half(cudaops::fp4_value(x >> 4)));
}

struct alignas(1) __nv_fp4_e2m1 {
  __nv_fp4_storage_t __x;
  __nv_fp4_e2m1() = default;
  template <class N, class = std::enable_if_t<std::is_arithmetic<N>::value>>
  explicit __nv_fp4_e2m1(N x) : __x(cudaops::fp4_bits((double)x)) {}
  explicit __nv_fp4_e2m1(__half x) : __nv_fp4_e2m1((float)x) {}
  explicit __nv_fp4_e2m1(__nv_bfloat16 x) : __nv_fp4_e2m1((float)x) {}
  template <class N, class = std::enable_if_t<std::is_arithmetic<N>::value>>
  explicit operator N() const { return (N)cudaops::fp4_value(__x); }
  explicit operator __half() const { return __half(cudaops::fp4_value(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_bfloat16(cudaops::fp4_value(__x)); }
};
struct alignas(1) __nv_fp4x2_e2m1 {
  __nv_fp4x2_storage_t __x;
  __nv_fp4x2_e2m1() = default;
  template <class V> explicit __nv_fp4x2_e2m1(V v)
      : __x((__nv_fp4x2_storage_t)cudaops::fp4_pack({(double)v.x, (double)v.y})) {}
  explicit operator float2() const { return float2{cudaops::fp4_value(__x), cudaops::fp4_value(__x >> 4)}; }
  explicit operator __half2() const { return __nv_cvt_fp4x2_to_halfraw2(__x, __NV_E2M1); }
};
struct alignas(2) __nv_fp4x4_e2m1 {
  __nv_fp4x4_storage_t __x;
  __nv_fp4x4_e2m1() = default;
  template <class V> explicit __nv_fp4x4_e2m1(V v)
      : __x((__nv_fp4x4_storage_t)cudaops::fp4_pack({(double)v.x, (double)v.y, (double)v.z, (double)v.w})) {}
  template <class P> explicit __nv_fp4x4_e2m1(P low, P high)
      : __x((__nv_fp4x4_storage_t)cudaops::fp4_pack({(double)low.x, (double)low.y, (double)high.x, (double)high.y})) {}
  explicit operator float4() const { return float4{at(0), at(1), at(2), at(3)}; }

 private:
  float at(int i) const { return cudaops::fp4_value((unsigned char)(__x >> 4 * i)); }
};
#include "macros_on.h"
