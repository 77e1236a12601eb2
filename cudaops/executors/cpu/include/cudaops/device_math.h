// Mathematical functions that CUDA has and <math.h> has not. Fast variants (`__expf`) lose here what they
// lose on a GPU by the factor before the base-2 function or the range reduction; what its tables lose they do
// not. Source: CUDA C++ Programming Guide, intrinsic functions, and the PTX that nvcc 13.0.88 makes of each.
#pragma once
#include "macros_off.h"
#include <cfenv>
#include <cmath>
#include <limits>
#include <math.h>
#include <stdlib.h>

#include "intrinsics.h"

CUDAOPS_FN float rsqrtf(float x) { return 1.0f / sqrtf(x); }
CUDAOPS_FN double rsqrt(double x) { return 1.0 / sqrt(x); }
CUDAOPS_FN float rsqrt(float x) { return rsqrtf(x); }
CUDAOPS_FN float rcbrtf(float x) { return 1.0f / cbrtf(x); }
CUDAOPS_FN double rcbrt(double x) { return 1.0 / cbrt(x); }
CUDAOPS_FN float fdividef(float a, float b) { return a / b; }
// By an infinity where the divisor is beyond 2^126.
CUDAOPS_FN float __fdividef(float a, float b) { unsigned u = __float_as_uint(b), m = 0u - ((u << 1) - 0xfd000001u < 0x01ffffffu); return a / __uint_as_float((u & ~(m & 0x7fffffu)) | (m & 0x7f800000u)); }
CUDAOPS_FN float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// glibc keeps these names for itself, so they are macros here.
namespace cudaops {
static constexpr double turn = 6.28318530717958647692;
CUDAOPS_FN float fast__expf(float x) { return exp2f(x * 1.4426950408889634f); }
CUDAOPS_FN float fast__exp10f(float x) { return exp2f(x * 3.3219280948873626f); }
CUDAOPS_FN float fast__logf(float x) { return log2f(x) * 0.69314718055994529f; }
CUDAOPS_FN float fast__log2f(float x) { return log2f(x); }
CUDAOPS_FN float fast__log10f(float x) { return log2f(x) * 0.30102999566398120f; }
CUDAOPS_FN float fast__sinf(float x) { return (float)sin(turn * (double)(x * 0.15915494309189535f)); }
CUDAOPS_FN float fast__cosf(float x) { return (float)cos(turn * (double)(x * 0.15915494309189535f)); }
CUDAOPS_FN float fast__tanf(float x) { return (float)tan(turn * (double)(x * 0.15915494309189535f)); }
CUDAOPS_FN float fast__tanhf(float x) { return tanhf(x); }
CUDAOPS_FN float fast__powf(float x, float y) { return powf(x, y); }
CUDAOPS_FN void fast__sincosf(float x, float* s, float* c) { *s = fast__sinf(x); *c = fast__cosf(x); }
}  // namespace cudaops
#define __expf ::cudaops::fast__expf
#define __logf ::cudaops::fast__logf
#define __log2f ::cudaops::fast__log2f
#define __log10f ::cudaops::fast__log10f
#define __sinf ::cudaops::fast__sinf
#define __cosf ::cudaops::fast__cosf
#define __tanf ::cudaops::fast__tanf
#define __tanhf ::cudaops::fast__tanhf
#define __powf ::cudaops::fast__powf
#define __exp10f ::cudaops::fast__exp10f
#define __sincosf ::cudaops::fast__sincosf
CUDAOPS_FN float __frsqrt_rn(float x) { return rsqrtf(x); }

namespace cudaops { static constexpr double pi = 3.14159265358979323846; }
CUDAOPS_FN double sinpi(double x) { return sin(cudaops::pi * x); }
CUDAOPS_FN double cospi(double x) { return cos(cudaops::pi * x); }
CUDAOPS_FN float sinpif(float x) { return (float)sinpi((double)x); }
CUDAOPS_FN float cospif(float x) { return (float)cospi((double)x); }
CUDAOPS_FN void sincospi(double x, double* s, double* c) { *s = sinpi(x); *c = cospi(x); }
CUDAOPS_FN void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
CUDAOPS_FN double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
CUDAOPS_FN float normcdff(float x) { return (float)normcdf((double)x); }
CUDAOPS_FN double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
CUDAOPS_FN float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
CUDAOPS_FN double norm3d(double x, double y, double z) { return sqrt(x * x + y * y + z * z); }
CUDAOPS_FN float norm3df(float x, float y, float z) { return (float)norm3d(x, y, z); }
CUDAOPS_FN double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
CUDAOPS_FN float rnorm3df(float x, float y, float z) { return (float)rnorm3d(x, y, z); }
CUDAOPS_FN double norm4d(double x, double y, double z, double w) { return sqrt(x * x + y * y + z * z + w * w); }
CUDAOPS_FN float norm4df(float x, float y, float z, float w) { return (float)norm4d(x, y, z, w); }

// `_rn` operations are never contracted into a fused multiply-add.
namespace cudaops {
template <class T>
CUDAOPS_FN T alone(T x) {
#if __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(x);
#else
  volatile T kept = x;  // g++ 11
  return kept;
#endif
}
}  // namespace cudaops
#define CUDAOPS_ROUNDED(T, d)                                                             \
  CUDAOPS_FN T __##d##add_rn(T a, T b) { return cudaops::alone(a + b); }                  \
  CUDAOPS_FN T __##d##sub_rn(T a, T b) { return cudaops::alone(a - b); }                  \
  CUDAOPS_FN T __##d##mul_rn(T a, T b) { return cudaops::alone(a * b); }                  \
  CUDAOPS_FN T __##d##div_rn(T a, T b) { return a / b; }
CUDAOPS_ROUNDED(float, f)
CUDAOPS_ROUNDED(double, d)
#undef CUDAOPS_ROUNDED
CUDAOPS_FN float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
CUDAOPS_FN double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
CUDAOPS_FN float __fsqrt_rn(float x) { return sqrtf(x); }
CUDAOPS_FN double __dsqrt_rn(double x) { return sqrt(x); }
CUDAOPS_FN float __frcp_rn(float x) { return 1.0f / x; }
CUDAOPS_FN double __drcp_rn(double x) { return 1.0 / x; }

// The same toward zero, up and down.
namespace cudaops {
template <class T, class Operation>
CUDAOPS_FN T directed(int mode, Operation operation, T a, T b = 0, T c = 0) {
  volatile T x = a, y = b, z = c;  // neither folded nor computed under another mode
  int before = std::fegetround();
  std::fesetround(mode);
  volatile T result = operation(x, y, z);
  std::fesetround(before);
  return result;
}
}  // namespace cudaops
#define CUDAOPS_DIRECTED_AS(T, d, suffix, mode)                                                                     \
  CUDAOPS_FN T __##d##add_##suffix(T a, T b) {                                                                      \
    return cudaops::directed(mode, [](T x, T y, T) { return x + y; }, a, b);                                        \
  }                                                                                                                 \
  CUDAOPS_FN T __##d##sub_##suffix(T a, T b) { return __##d##add_##suffix(a, -b); }                                 \
  CUDAOPS_FN T __##d##mul_##suffix(T a, T b) {                                                                      \
    return cudaops::directed(mode, [](T x, T y, T) { return x * y; }, a, b);                                        \
  }                                                                                                                 \
  CUDAOPS_FN T __##d##div_##suffix(T a, T b) {                                                                      \
    return cudaops::directed(mode, [](T x, T y, T) { return x / y; }, a, b);                                        \
  }                                                                                                                 \
  CUDAOPS_FN T __##d##rcp_##suffix(T a) { return __##d##div_##suffix((T)1, a); }                                    \
  CUDAOPS_FN T __##d##sqrt_##suffix(T a) {                                                                          \
    return cudaops::directed(mode, [](T x, T, T) { return std::sqrt(x); }, a);                                      \
  }
#define CUDAOPS_DIRECTED(suffix, mode)                                                                              \
  CUDAOPS_DIRECTED_AS(float, f, suffix, mode)                                                                       \
  CUDAOPS_DIRECTED_AS(double, d, suffix, mode)                                                                      \
  CUDAOPS_FN float __fmaf_##suffix(float a, float b, float c) {                                                     \
    return cudaops::directed(mode, [](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);           \
  }                                                                                                                 \
  CUDAOPS_FN double __fma_##suffix(double a, double b, double c) {                                                  \
    return cudaops::directed(mode, [](double x, double y, double z) { return std::fma(x, y, z); }, a, b, c);        \
  }
CUDAOPS_DIRECTED(rz, FE_TOWARDZERO)
CUDAOPS_DIRECTED(ru, FE_UPWARD)
CUDAOPS_DIRECTED(rd, FE_DOWNWARD)
#undef CUDAOPS_DIRECTED
#undef CUDAOPS_DIRECTED_AS

// Conversions: the suffix names the rounding. Out of range saturates; not-a-number gives 0, but where
// double precision or 64 bits are involved the highest bit alone (PTX ISA, `cvt`).
namespace cudaops {
template <class To, class From>
CUDAOPS_FN To saturating(From x) {
  constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  if (x != x) return sizeof(To) == 8 || (sizeof(To) == 4 && sizeof(From) == 8) ? (To)(1ull << (8 * sizeof(To) - 1)) : (To)0;
  if (x <= (From)low) return low;
  if (x >= (From)high) return high;
  return (To)x;
}
}  // namespace cudaops
#define CUDAOPS_CONVERT(name, To, From)                                                   \
  CUDAOPS_FN To name##_rn(From x) { return cudaops::saturating<To>(nearbyint(x)); }       \
  CUDAOPS_FN To name##_rz(From x) { return cudaops::saturating<To>(trunc(x)); }           \
  CUDAOPS_FN To name##_ru(From x) { return cudaops::saturating<To>(ceil(x)); }            \
  CUDAOPS_FN To name##_rd(From x) { return cudaops::saturating<To>(floor(x)); }
CUDAOPS_CONVERT(__float2int, int, float)
CUDAOPS_CONVERT(__float2uint, unsigned, float)
CUDAOPS_CONVERT(__float2ll, long long, float)
CUDAOPS_CONVERT(__float2ull, unsigned long long, float)
CUDAOPS_CONVERT(__double2int, int, double)
CUDAOPS_CONVERT(__double2uint, unsigned, double)
CUDAOPS_CONVERT(__double2ll, long long, double)
CUDAOPS_CONVERT(__double2ull, unsigned long long, double)
#undef CUDAOPS_CONVERT
CUDAOPS_FN float __int2float_rn(int x) { return (float)x; }
CUDAOPS_FN float __uint2float_rn(unsigned x) { return (float)x; }
CUDAOPS_FN float __ll2float_rn(long long x) { return (float)x; }
CUDAOPS_FN float __ull2float_rn(unsigned long long x) { return (float)x; }
CUDAOPS_FN double __int2double_rn(int x) { return (double)x; }
CUDAOPS_FN double __uint2double_rn(unsigned x) { return (double)x; }
CUDAOPS_FN double __ll2double_rn(long long x) { return (double)x; }
CUDAOPS_FN double __ull2double_rn(unsigned long long x) { return (double)x; }
CUDAOPS_FN float __double2float_rn(double x) { return (float)x; }
#include "macros_on.h"
