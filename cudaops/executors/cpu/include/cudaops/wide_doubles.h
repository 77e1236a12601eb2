// Under CUDAOPS_WIDE_DOUBLES the accuracy yardstick computes in long double where the author wrote
// double, and in double where he wrote float: types and functions that long double lacks. 64 bits of
// significand on x86-64, 113 on aarch64. Both are names of one word, because authors write `double(x)`.
#pragma once
#include "macros_off.h"
#include <atomic>
#include <cmath>

typedef double cudaops_wide_float;
typedef double1 cudaops_wide_float1;
typedef double2 cudaops_wide_float2;
typedef double3 cudaops_wide_float3;
typedef double4 cudaops_wide_float4;
static constexpr auto cudaops_make_wide_float1 = make_double1;
static constexpr auto cudaops_make_wide_float2 = make_double2;
static constexpr auto cudaops_make_wide_float3 = make_double3;
static constexpr auto cudaops_make_wide_float4 = make_double4;

typedef long double cudaops_wide_double;
struct cudaops_wide_double1 { long double x; };
struct alignas(32) cudaops_wide_double2 { long double x, y; };
struct cudaops_wide_double3 { long double x, y, z; };
struct alignas(32) cudaops_wide_double4 { long double x, y, z, w; };
CUDAOPS_FN cudaops_wide_double1 cudaops_make_wide_double1(long double x) { return {x}; }
CUDAOPS_FN cudaops_wide_double2 cudaops_make_wide_double2(long double x, long double y) { return {x, y}; }
CUDAOPS_FN cudaops_wide_double3 cudaops_make_wide_double3(long double x, long double y, long double z) {
  return {x, y, z};
}
CUDAOPS_FN cudaops_wide_double4 cudaops_make_wide_double4(long double x, long double y, long double z, long double w) {
  return {x, y, z, w};
}

namespace cudaops {
// No processor exchanges so much at once: one lock for all of them.
static std::atomic_flag wide_lock = ATOMIC_FLAG_INIT;
template <class F>
CUDAOPS_ATOMIC_LOOP inline long double wide_update(long double* p, F next) {
  CUDAOPS_NOTE(p);
  while (wide_lock.test_and_set(std::memory_order_acquire)) {}
  long double old = *p;
  *p = next(old);
  wide_lock.clear(std::memory_order_release);
  return old;
}

static constexpr long double wide_pi = 3.141592653589793238462643383279502884L;
}  // namespace cudaops

CUDAOPS_FN long double atomicAdd(long double* p, long double v) {
  return cudaops::wide_update(p, [v](long double o) { return o + v; });
}
CUDAOPS_FN long double atomicSub(long double* p, long double v) {
  return cudaops::wide_update(p, [v](long double o) { return o - v; });
}
CUDAOPS_FN long double atomicExch(long double* p, long double v) {
  return cudaops::wide_update(p, [v](long double) { return v; });
}

CUDAOPS_FN long double rsqrt(long double x) { return 1.0L / sqrtl(x); }
CUDAOPS_FN long double rcbrt(long double x) { return 1.0L / cbrtl(x); }
CUDAOPS_FN long double exp10(long double x) { return powl(10.0L, x); }
CUDAOPS_FN long double sinpi(long double x) { return sinl(cudaops::wide_pi * x); }
CUDAOPS_FN long double cospi(long double x) { return cosl(cudaops::wide_pi * x); }
CUDAOPS_FN void sincos(long double x, long double* s, long double* c) { *s = sinl(x), *c = cosl(x); }
CUDAOPS_FN void sincospi(long double x, long double* s, long double* c) { *s = sinpi(x), *c = cospi(x); }
CUDAOPS_FN long double normcdf(long double x) { return 0.5L * erfcl(-x * 0.707106781186547524400844362104849039L); }
CUDAOPS_FN long double rhypot(long double x, long double y) { return 1.0L / hypotl(x, y); }
CUDAOPS_FN long double norm3d(long double x, long double y, long double z) { return sqrtl(x * x + y * y + z * z); }
CUDAOPS_FN long double rnorm3d(long double x, long double y, long double z) { return 1.0L / norm3d(x, y, z); }
CUDAOPS_FN long double norm4d(long double x, long double y, long double z, long double w) {
  return sqrtl(x * x + y * y + z * z + w * w);
}
#define CUDAOPS_ROUNDED(suffix)                                                                                 \
  CUDAOPS_FN long double __dadd_##suffix(long double a, long double b) { return a + b; }                        \
  CUDAOPS_FN long double __dsub_##suffix(long double a, long double b) { return a - b; }                        \
  CUDAOPS_FN long double __dmul_##suffix(long double a, long double b) { return a * b; }                        \
  CUDAOPS_FN long double __ddiv_##suffix(long double a, long double b) { return a / b; }                        \
  CUDAOPS_FN long double __fma_##suffix(long double a, long double b, long double c) { return a * b + c; }      \
  CUDAOPS_FN long double __dsqrt_##suffix(long double x) { return sqrtl(x); }                                   \
  CUDAOPS_FN long double __drcp_##suffix(long double x) { return 1.0L / x; }
CUDAOPS_ROUNDED(rn)
CUDAOPS_ROUNDED(rz)
CUDAOPS_ROUNDED(ru)
CUDAOPS_ROUNDED(rd)
#undef CUDAOPS_ROUNDED

#define CUDAOPS_MINMAX(A, B)                                                        \
  CUDAOPS_FN long double min(A a, B b) { return fminl(a, b); }                      \
  CUDAOPS_FN long double max(A a, B b) { return fmaxl(a, b); }
CUDAOPS_MINMAX(long double, long double)
CUDAOPS_MINMAX(long double, double)
CUDAOPS_MINMAX(double, long double)
CUDAOPS_MINMAX(long double, float)
CUDAOPS_MINMAX(float, long double)
#undef CUDAOPS_MINMAX
#include "macros_on.h"
