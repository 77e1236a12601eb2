// Half and bfloat16 as double, for the accuracy yardstick. Both stay types of their own, so that an
// author's overloads for half and float do not become one.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define CUDAOPS_BOTH __host__ __device__ inline
#define CUDAOPS_WIDE __device__ inline

namespace cudaops {
template <int Kind>
struct wide_narrow {
  double value;
  wide_narrow() = default;
  template <typename N>
  CUDAOPS_BOTH wide_narrow(N x) : value((double)x) {}
  CUDAOPS_BOTH operator double() const { return value; }
  CUDAOPS_BOTH wide_narrow& operator+=(wide_narrow o) { value += o.value; return *this; }
  CUDAOPS_BOTH wide_narrow& operator-=(wide_narrow o) { value -= o.value; return *this; }
  CUDAOPS_BOTH wide_narrow& operator*=(wide_narrow o) { value *= o.value; return *this; }
  CUDAOPS_BOTH wide_narrow& operator/=(wide_narrow o) { value /= o.value; return *this; }
};
template <int Kind>
struct alignas(16) wide_narrow2 {
  wide_narrow<Kind> x, y;
  wide_narrow2() = default;
  CUDAOPS_BOTH wide_narrow2(wide_narrow<Kind> a, wide_narrow<Kind> b) : x(a), y(b) {}
};
typedef wide_narrow<0> wide_half;
typedef wide_narrow2<0> wide_half2;
typedef wide_narrow<1> wide_bfloat16;
typedef wide_narrow2<1> wide_bfloat162;

#define CUDAOPS_PAIR template <int K> CUDAOPS_BOTH wide_narrow2<K>
CUDAOPS_PAIR operator+(wide_narrow2<K> a, wide_narrow2<K> b) { return {a.x.value + b.x.value, a.y.value + b.y.value}; }
CUDAOPS_PAIR operator-(wide_narrow2<K> a, wide_narrow2<K> b) { return {a.x.value - b.x.value, a.y.value - b.y.value}; }
CUDAOPS_PAIR operator*(wide_narrow2<K> a, wide_narrow2<K> b) { return {a.x.value * b.x.value, a.y.value * b.y.value}; }
CUDAOPS_PAIR operator/(wide_narrow2<K> a, wide_narrow2<K> b) { return {a.x.value / b.x.value, a.y.value / b.y.value}; }
CUDAOPS_PAIR operator-(wide_narrow2<K> a) { return {-a.x.value, -a.y.value}; }
CUDAOPS_PAIR& operator+=(wide_narrow2<K>& a, wide_narrow2<K> b) { return a = a + b; }
CUDAOPS_PAIR& operator-=(wide_narrow2<K>& a, wide_narrow2<K> b) { return a = a - b; }
CUDAOPS_PAIR& operator*=(wide_narrow2<K>& a, wide_narrow2<K> b) { return a = a * b; }
#undef CUDAOPS_PAIR
template <int K>
CUDAOPS_BOTH double2 to_wide2(wide_narrow2<K> a) { return make_double2(a.x.value, a.y.value); }
template <typename P>
CUDAOPS_BOTH P pair_of(double x) { return {x, x}; }
template <typename P>
CUDAOPS_BOTH P pair_of(double x, double y) { return {x, y}; }
template <typename P>
CUDAOPS_BOTH P pair_of(double2 v) { return {v.x, v.y}; }
}  // namespace cudaops

#define CUDAOPS_ONE template <int K> CUDAOPS_WIDE cudaops::wide_narrow<K>
#define CUDAOPS_TWO template <int K> CUDAOPS_WIDE cudaops::wide_narrow2<K>
#define CUDAOPS_ONE_OF(name, expression) \
  CUDAOPS_ONE name(cudaops::wide_narrow<K> h) { double a = h.value; return expression; }
#define CUDAOPS_TWO_OF(name, expression) \
  CUDAOPS_ONE name(cudaops::wide_narrow<K> g, cudaops::wide_narrow<K> h) { double a = g.value, b = h.value; return expression; }
#define CUDAOPS_PAIR_OF(name, expression) \
  CUDAOPS_TWO name(cudaops::wide_narrow2<K> a, cudaops::wide_narrow2<K> b) { return expression; }
CUDAOPS_ONE_OF(__hneg, -a)
CUDAOPS_ONE_OF(__habs, fabs(a))
CUDAOPS_ONE_OF(hexp, exp(a))
CUDAOPS_ONE_OF(hexp2, exp2(a))
CUDAOPS_ONE_OF(hlog, log(a))
CUDAOPS_ONE_OF(hlog2, log2(a))
CUDAOPS_ONE_OF(hsqrt, sqrt(a))
CUDAOPS_ONE_OF(hrsqrt, rsqrt(a))
CUDAOPS_ONE_OF(hrcp, 1.0 / a)
CUDAOPS_ONE_OF(hsin, sin(a))
CUDAOPS_ONE_OF(hcos, cos(a))
CUDAOPS_ONE_OF(htanh, tanh(a))
CUDAOPS_ONE_OF(hfloor, floor(a))
CUDAOPS_ONE_OF(hceil, ceil(a))
CUDAOPS_ONE_OF(hrint, rint(a))
CUDAOPS_ONE_OF(htrunc, trunc(a))
CUDAOPS_TWO_OF(__hadd, a + b)
CUDAOPS_TWO_OF(__hsub, a - b)
CUDAOPS_TWO_OF(__hmul, a * b)
CUDAOPS_TWO_OF(__hdiv, a / b)
CUDAOPS_TWO_OF(__hmax, fmax(a, b))
CUDAOPS_TWO_OF(__hmin, fmin(a, b))
CUDAOPS_PAIR_OF(__hadd2, a + b)
CUDAOPS_PAIR_OF(__hsub2, a - b)
CUDAOPS_PAIR_OF(__hmul2, a * b)
CUDAOPS_PAIR_OF(__h2div, a / b)
CUDAOPS_ONE __hfma(cudaops::wide_narrow<K> a, cudaops::wide_narrow<K> b, cudaops::wide_narrow<K> c) { return fma(a.value, b.value, c.value); }
CUDAOPS_TWO __hfma2(cudaops::wide_narrow2<K> a, cudaops::wide_narrow2<K> b, cudaops::wide_narrow2<K> c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
CUDAOPS_ONE __ldg(const cudaops::wide_narrow<K>* p) { return *p; }
CUDAOPS_TWO __ldg(const cudaops::wide_narrow2<K>* p) { return *p; }
CUDAOPS_ONE atomicAdd(cudaops::wide_narrow<K>* p, cudaops::wide_narrow<K> v) { return atomicAdd(&p->value, v.value); }
#define CUDAOPS_SHUFFLE(name, T) \
  CUDAOPS_ONE name(unsigned m, cudaops::wide_narrow<K> v, T from, int width = 32) { return name(m, v.value, from, width); }
CUDAOPS_SHUFFLE(__shfl_sync, int)
CUDAOPS_SHUFFLE(__shfl_up_sync, unsigned)
CUDAOPS_SHUFFLE(__shfl_down_sync, unsigned)
CUDAOPS_SHUFFLE(__shfl_xor_sync, int)
#define CUDAOPS_COMPARE(name, op) \
  template <int K> CUDAOPS_WIDE bool name(cudaops::wide_narrow<K> a, cudaops::wide_narrow<K> b) { return a.value op b.value; }
CUDAOPS_COMPARE(__heq, ==)
CUDAOPS_COMPARE(__hne, !=)
CUDAOPS_COMPARE(__hlt, <)
CUDAOPS_COMPARE(__hle, <=)
CUDAOPS_COMPARE(__hgt, >)
CUDAOPS_COMPARE(__hge, >=)
#undef CUDAOPS_ONE
#undef CUDAOPS_TWO
#undef CUDAOPS_ONE_OF
#undef CUDAOPS_TWO_OF
#undef CUDAOPS_PAIR_OF
#undef CUDAOPS_SHUFFLE
#undef CUDAOPS_COMPARE
#undef CUDAOPS_BOTH
#undef CUDAOPS_WIDE

#include "cudaops_widened.h"

#define __half ::cudaops::wide_half
#define half ::cudaops::wide_half
#define __half2 ::cudaops::wide_half2
#define half2 ::cudaops::wide_half2
#define __nv_bfloat16 ::cudaops::wide_bfloat16
#define nv_bfloat16 ::cudaops::wide_bfloat16
#define __nv_bfloat162 ::cudaops::wide_bfloat162
#define nv_bfloat162 ::cudaops::wide_bfloat162

#define __half2float (double)
#define __bfloat162float (double)
#define __float2half ::cudaops::wide_half
#define __float2half_rn ::cudaops::wide_half
#define __double2half ::cudaops::wide_half
#define __int2half_rn ::cudaops::wide_half
#define __float2bfloat16 ::cudaops::wide_bfloat16
#define __float2bfloat16_rn ::cudaops::wide_bfloat16
#define __double2bfloat16 ::cudaops::wide_bfloat16
#define __float2half2_rn ::cudaops::pair_of<::cudaops::wide_half2>
#define __half2half2 ::cudaops::pair_of<::cudaops::wide_half2>
#define __floats2half2_rn ::cudaops::pair_of<::cudaops::wide_half2>
#define __halves2half2 ::cudaops::pair_of<::cudaops::wide_half2>
#define make_half2 ::cudaops::pair_of<::cudaops::wide_half2>
#define __float22half2_rn ::cudaops::pair_of<::cudaops::wide_half2>
#define __float2bfloat162_rn ::cudaops::pair_of<::cudaops::wide_bfloat162>
#define __bfloat162bfloat162 ::cudaops::pair_of<::cudaops::wide_bfloat162>
#define __floats2bfloat162_rn ::cudaops::pair_of<::cudaops::wide_bfloat162>
#define __halves2bfloat162 ::cudaops::pair_of<::cudaops::wide_bfloat162>
#define make_bfloat162 ::cudaops::pair_of<::cudaops::wide_bfloat162>
#define __float22bfloat162_rn ::cudaops::pair_of<::cudaops::wide_bfloat162>
#define __half22float2 ::cudaops::to_wide2
#define __bfloat1622float2 ::cudaops::to_wide2
#define __low2half(v) ((v).x)
#define __high2half(v) ((v).y)
#define __low2float(v) ((double)(v).x)
#define __high2float(v) ((double)(v).y)
#define __low2bfloat16(v) ((v).x)
#define __high2bfloat16(v) ((v).y)
