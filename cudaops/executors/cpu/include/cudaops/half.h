// cuda_fp16.h and cuda_bf16.h: storage of 16 bits, arithmetic in single precision rounded after each
// operation, which is what the hardware's half instructions give. Under CUDAOPS_WIDENED both types
// hold a double (nothing narrower than double in the accuracy yardstick).
#pragma once
#include <cstring>

#include "cudaops/cuda.h"

namespace cudaops {

#ifdef __FLT16_MAX__
static inline unsigned short half_bits(float x) {
  _Float16 h = (_Float16)x;
  unsigned short bits;
  std::memcpy(&bits, &h, 2);
  return bits;
}
static inline float half_value(unsigned short bits) {
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return (float)h;
}
#else  // g++ 11: no _Float16 in C++
static inline unsigned short half_bits(float x) {
  unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u)  // subnormal: 2^-24 is one unit
    return (unsigned short)(sign | (unsigned)nearbyint((double)__uint_as_float(magnitude) * 16777216.0));
  unsigned rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);  // to nearest, ties to even
  return (unsigned short)(sign | ((rounded >> 13) - (112u << 10)));
}
static inline float half_value(unsigned short bits) {
  unsigned sign = (unsigned)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  float value = exponent ? __uint_as_float((exponent + 112u) << 23 | fraction << 13) : (float)fraction / 16777216.0f;
  return sign ? -value : value;
}
#endif
static inline unsigned short brain_bits(float x) {
  unsigned bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);  // round to nearest even
}
static inline float brain_value(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

#ifdef CUDAOPS_WIDENED
using narrow_half = double;
using narrow_brain = double;
using half_math = double;
static inline double pack_half(double x) { return x; }
static inline double unpack_half(double x) { return x; }
static inline double pack_brain(double x) { return x; }
static inline double unpack_brain(double x) { return x; }
#else
using narrow_half = unsigned short;
using narrow_brain = unsigned short;
using half_math = float;
static inline unsigned short pack_half(float x) { return half_bits(x); }
static inline float unpack_half(unsigned short bits) { return half_value(bits); }
static inline unsigned short pack_brain(float x) { return brain_bits(x); }
static inline float unpack_brain(unsigned short bits) { return brain_value(bits); }
#endif

}  // namespace cudaops

#define CUDAOPS_NARROW(T, storage, pack, unpack, alignment)                                          \
  struct alignas(alignment) T {                                                                     \
    cudaops::storage bits;                                                                          \
    T() = default;                                                                                  \
    T(cudaops::half_math x) : bits(cudaops::pack(x)) {}                                             \
    template <class N, class = std::enable_if_t<std::is_arithmetic<N>::value>>                      \
    T(N x) : bits(cudaops::pack((cudaops::half_math)x)) {}                                          \
    operator cudaops::half_math() const { return cudaops::unpack(bits); }                           \
    T& operator+=(T o) { return *this = T((cudaops::half_math)*this + (cudaops::half_math)o); }     \
    T& operator-=(T o) { return *this = T((cudaops::half_math)*this - (cudaops::half_math)o); }     \
    T& operator*=(T o) { return *this = T((cudaops::half_math)*this * (cudaops::half_math)o); }     \
    T& operator/=(T o) { return *this = T((cudaops::half_math)*this / (cudaops::half_math)o); }     \
  };                                                                                                \
  static inline T operator+(T a, T b) { return a += b; }                                            \
  static inline T operator-(T a, T b) { return a -= b; }                                            \
  static inline T operator*(T a, T b) { return a *= b; }                                            \
  static inline T operator/(T a, T b) { return a /= b; }                                            \
  static inline T operator-(T a) { return T(-(cudaops::half_math)a); }                              \
  static inline bool operator<(T a, T b) { return (cudaops::half_math)a < (cudaops::half_math)b; }  \
  static inline bool operator>(T a, T b) { return (cudaops::half_math)a > (cudaops::half_math)b; }  \
  static inline bool operator<=(T a, T b) { return (cudaops::half_math)a <= (cudaops::half_math)b; } \
  static inline bool operator>=(T a, T b) { return (cudaops::half_math)a >= (cudaops::half_math)b; } \
  static inline bool operator==(T a, T b) { return (cudaops::half_math)a == (cudaops::half_math)b; } \
  static inline bool operator!=(T a, T b) { return (cudaops::half_math)a != (cudaops::half_math)b; } \
  static inline T __hadd(T a, T b) { return a + b; }                                                \
  static inline T __hsub(T a, T b) { return a - b; }                                                \
  static inline T __hmul(T a, T b) { return a * b; }                                                \
  static inline T __hdiv(T a, T b) { return a / b; }                                                \
  static inline T __hneg(T a) { return -a; }                                                        \
  static inline T __habs(T a) { return T(fabs((cudaops::half_math)a)); }                            \
  static inline T __hfma(T a, T b, T c) {                                                           \
    return T((cudaops::half_math)((double)(cudaops::half_math)a * (double)(cudaops::half_math)b +   \
                                  (double)(cudaops::half_math)c));                                  \
  }                                                                                                 \
  static inline T __hmax(T a, T b) { return a > b || b != b ? a : b; }                              \
  static inline T __hmin(T a, T b) { return a < b || b != b ? a : b; }                              \
  static inline bool __heq(T a, T b) { return a == b; }                                             \
  static inline bool __hne(T a, T b) { return a != b; }                                             \
  static inline bool __hlt(T a, T b) { return a < b; }                                              \
  static inline bool __hle(T a, T b) { return a <= b; }                                             \
  static inline bool __hgt(T a, T b) { return a > b; }                                              \
  static inline bool __hge(T a, T b) { return a >= b; }                                             \
  static inline bool __hisnan(T a) { return a != a; }                                               \
  static inline T hexp(T a) { return T(exp((cudaops::half_math)a)); }                               \
  static inline T hlog(T a) { return T(log((cudaops::half_math)a)); }                               \
  static inline T hsqrt(T a) { return T(sqrt((cudaops::half_math)a)); }                             \
  static inline T hrsqrt(T a) { return T(1 / sqrt((cudaops::half_math)a)); }                        \
  static inline T hrcp(T a) { return T(1 / (cudaops::half_math)a); }                                \
  static inline T hsin(T a) { return T(sin((cudaops::half_math)a)); }                               \
  static inline T hcos(T a) { return T(cos((cudaops::half_math)a)); }                               \
  static inline T atomicAdd(T* p, T v) {                                                            \
    return cudaops::atomic_update(p, [v](T o) { return o + v; });                                   \
  }

// Pairs: every operation is that of the two halves.
#define CUDAOPS_NARROW_PAIR(P, T, alignment)                                                         \
  struct alignas(alignment) P {                                                                     \
    T x, y;                                                                                         \
    P() = default;                                                                                  \
    P(T a, T b) : x(a), y(b) {}                                                                     \
  };                                                                                                \
  static inline P operator+(P a, P b) { return P(a.x + b.x, a.y + b.y); }                           \
  static inline P operator-(P a, P b) { return P(a.x - b.x, a.y - b.y); }                           \
  static inline P operator*(P a, P b) { return P(a.x * b.x, a.y * b.y); }                           \
  static inline P operator/(P a, P b) { return P(a.x / b.x, a.y / b.y); }                           \
  static inline P& operator+=(P& a, P b) { return a = a + b; }                                      \
  static inline P& operator-=(P& a, P b) { return a = a - b; }                                      \
  static inline P& operator*=(P& a, P b) { return a = a * b; }                                      \
  static inline P operator-(P a) { return P(-a.x, -a.y); }                                          \
  static inline P __hadd2(P a, P b) { return a + b; }                                               \
  static inline P __hsub2(P a, P b) { return a - b; }                                               \
  static inline P __hmul2(P a, P b) { return a * b; }                                               \
  static inline P __h2div(P a, P b) { return a / b; }                                               \
  static inline P __hneg2(P a) { return -a; }                                                       \
  static inline P __hfma2(P a, P b, P c) { return P(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  static inline P __hmax2(P a, P b) { return P(__hmax(a.x, b.x), __hmax(a.y, b.y)); }               \
  static inline P __hmin2(P a, P b) { return P(__hmin(a.x, b.x), __hmin(a.y, b.y)); }               \
  static inline P __heq2(P a, P b) { return P(T(a.x == b.x), T(a.y == b.y)); }                      \
  static inline bool __hbeq2(P a, P b) { return a.x == b.x && a.y == b.y; }                         \
  static inline P __hne2(P a, P b) { return P(T(a.x != b.x), T(a.y != b.y)); }                      \
  static inline bool __hbne2(P a, P b) { return a.x != b.x && a.y != b.y; }                         \
  static inline P __hlt2(P a, P b) { return P(T(a.x < b.x), T(a.y < b.y)); }                        \
  static inline bool __hblt2(P a, P b) { return a.x < b.x && a.y < b.y; }                           \
  static inline P __hle2(P a, P b) { return P(T(a.x <= b.x), T(a.y <= b.y)); }                      \
  static inline bool __hble2(P a, P b) { return a.x <= b.x && a.y <= b.y; }                         \
  static inline P __hgt2(P a, P b) { return P(T(a.x > b.x), T(a.y > b.y)); }                        \
  static inline bool __hbgt2(P a, P b) { return a.x > b.x && a.y > b.y; }                           \
  static inline P __hge2(P a, P b) { return P(T(a.x >= b.x), T(a.y >= b.y)); }                      \
  static inline bool __hbge2(P a, P b) { return a.x >= b.x && a.y >= b.y; }                         \
  static inline P h2log(P a) { return P(hlog(a.x), hlog(a.y)); }                                    \
  static inline P h2sqrt(P a) { return P(hsqrt(a.x), hsqrt(a.y)); }                                 \
  static inline P h2rsqrt(P a) { return P(hrsqrt(a.x), hrsqrt(a.y)); }                              \
  static inline P h2rcp(P a) { return P(hrcp(a.x), hrcp(a.y)); }                                    \
  static inline P h2sin(P a) { return P(hsin(a.x), hsin(a.y)); }                                    \
  static inline P h2cos(P a) { return P(hcos(a.x), hcos(a.y)); }                                    \
  static inline P __habs2(P a) { return P(__habs(a.x), __habs(a.y)); }                              \
  static inline P h2exp(P a) { return P(hexp(a.x), hexp(a.y)); }

CUDAOPS_NARROW(__half, narrow_half, pack_half, unpack_half, sizeof(cudaops::narrow_half))
CUDAOPS_NARROW_PAIR(__half2, __half, 2 * sizeof(cudaops::narrow_half))
CUDAOPS_NARROW(__nv_bfloat16, narrow_brain, pack_brain, unpack_brain, sizeof(cudaops::narrow_brain))
CUDAOPS_NARROW_PAIR(__nv_bfloat162, __nv_bfloat16, 2 * sizeof(cudaops::narrow_brain))
#undef CUDAOPS_NARROW
#undef CUDAOPS_NARROW_PAIR
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDAOPS_NARROW_CONVERT(T, P, name)                                                           \
  static inline cudaops::half_math __##name##2float(T h) { return h; }                              \
  static inline T __float2##name(cudaops::half_math x) { return T(x); }                             \
  static inline T __float2##name##_rn(cudaops::half_math x) { return T(x); }                        \
  static inline T __double2##name(double x) { return T((cudaops::half_math)x); }                    \
  static inline T __int2##name##_rn(int x) { return T((cudaops::half_math)x); }                     \
  static inline int __##name##2int_rn(T h) { return (int)nearbyint((cudaops::half_math)h); }        \
  static inline int __##name##2int_rz(T h) { return (int)(cudaops::half_math)h; }                   \
  static inline P __float2##name##2_rn(cudaops::half_math x) { return P(T(x), T(x)); }              \
  static inline P __floats2##name##2_rn(cudaops::half_math a, cudaops::half_math b) { return P(T(a), T(b)); } \
  static inline P __##name##2##name##2(T a) { return P(a, a); }                                     \
  static inline P __halves2##name##2(T a, T b) { return P(a, b); }
CUDAOPS_NARROW_CONVERT(__half, __half2, half)
CUDAOPS_NARROW_CONVERT(__nv_bfloat16, __nv_bfloat162, bfloat16)
#undef CUDAOPS_NARROW_CONVERT
static inline __half2 make_half2(__half a, __half b) { return __half2(a, b); }
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
static inline __half __low2half(__half2 h) { return h.x; }
static inline __half __high2half(__half2 h) { return h.y; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) { return h.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) { return h.y; }
static inline cudaops::half_math __low2float(__half2 h) { return h.x; }
static inline cudaops::half_math __high2float(__half2 h) { return h.y; }
#ifdef CUDAOPS_WIDENED
static inline double2 __half22float2(__half2 h) { return double2{h.x, h.y}; }
static inline double2 __bfloat1622float2(__nv_bfloat162 h) { return double2{h.x, h.y}; }
static inline __half2 __float22half2_rn(double2 v) { return __half2(__half(v.x), __half(v.y)); }
static inline __nv_bfloat162 __float22bfloat162_rn(double2 v) { return __nv_bfloat162(__nv_bfloat16(v.x), __nv_bfloat16(v.y)); }
#else
static inline float2 __half22float2(__half2 h) { return float2{h.x, h.y}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 h) { return float2{h.x, h.y}; }
static inline __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __nv_bfloat162(__nv_bfloat16(v.x), __nv_bfloat16(v.y)); }
#endif
static inline unsigned short __half_as_ushort(__half h) { return cudaops::half_bits((float)(cudaops::half_math)h); }
static inline short __half_as_short(__half h) { return (short)__half_as_ushort(h); }
static inline __half __ushort_as_half(unsigned short bits) { return __half(cudaops::half_value(bits)); }
static inline __half __short_as_half(short bits) { return __ushort_as_half((unsigned short)bits); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return cudaops::brain_bits((float)(cudaops::half_math)h); }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(cudaops::brain_value(bits)); }

namespace cudaops {
#ifdef CUDAOPS_WIDENED
#define CUDAOPS_NARROW_ELEMENT(T, text) template <> struct element<T, void> { static constexpr const char* name = "f64"; };
#else
#define CUDAOPS_NARROW_ELEMENT(T, text) template <> struct element<T, void> { static constexpr const char* name = text; };
#endif
CUDAOPS_NARROW_ELEMENT(__half, "f16")
CUDAOPS_NARROW_ELEMENT(__half2, "f16")
CUDAOPS_NARROW_ELEMENT(__nv_bfloat16, "bf16")
CUDAOPS_NARROW_ELEMENT(__nv_bfloat162, "bf16")
#undef CUDAOPS_NARROW_ELEMENT
}  // namespace cudaops
