// Half and bfloat16 as double, for the accuracy yardstick: the declarations of the `cpu` executor's headers,
// in a namespace beside CUDA's own. Both stay types of their own, so that an author's overloads for half
// and float do not become one.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#define CUDAOPS_API __host__ __device__ inline
#define CUDAOPS_MEMBER __host__ __device__ inline
#define CUDAOPS_IF_ARITHMETIC(N) std::enable_if_t<std::is_arithmetic<N>::value>
#define CUDAOPS_IF_INTEGRAL(N) std::enable_if_t<std::is_integral<N>::value>

namespace cudaops {
enum class Rounding { Nearest, Zero, Down, Up };
struct Binary16 {
  CUDAOPS_MEMBER static unsigned short bits(double x) { return ::__half_as_ushort(::__double2half(x)); }
  CUDAOPS_MEMBER static double value(unsigned short bits) { return ::__half2float(::__ushort_as_half(bits)); }
};
struct Brain16 {
  CUDAOPS_MEMBER static unsigned short bits(double x) { return ::__bfloat16_as_ushort(::__double2bfloat16(x)); }
  CUDAOPS_MEMBER static double value(unsigned short bits) { return ::__bfloat162float(::__ushort_as_bfloat16(bits)); }
};
template <class Format> using narrow_storage = double;
template <class Format> CUDAOPS_API double pack(double x) { return x; }
template <class Format> CUDAOPS_API double unpack(double x) { return x; }
template <class Format, Rounding mode, class N> CUDAOPS_API double pack_rounded(N x) { return (double)x; }
template <class Format> CUDAOPS_API unsigned short narrow_bits(double x) { return Format::bits(x); }
template <class Format> CUDAOPS_API double from_narrow_bits(unsigned short bits) { return Format::value(bits); }
CUDAOPS_API double fused_once(double sum, double, double, double) { return sum; }
CUDAOPS_API double larger_number(double a, double b, double larger) { return a == 0 && b == 0 ? a + b : larger; }
CUDAOPS_API double smaller_number(double a, double b, double smaller) { return a == 0 && b == 0 ? -(-a + -b) : smaller; }
// Toward zero; where that does not fit, the nearest number that does. `bool` asks whether it is not zero.
template <class N>
CUDAOPS_API N to_integer(double x) {
  if (std::is_same<N, bool>::value) return (N)(x != 0);
  const double past = (double)(1ull << (8 * sizeof(N) - 1)) * (std::is_signed<N>::value ? 1 : 2);
  const N least = std::is_signed<N>::value ? (N)(1ull << (8 * sizeof(N) - 1)) : (N)0;
  if (x != x) return sizeof(N) == 8 ? (N)(1ull << 63) : (N)0;
  return x <= (double)least ? least : x >= past ? (N)~least : (N)x;
}
}  // namespace cudaops

#define CUDAOPS_NARROW_LOAD(name, T) __device__ inline T name(const T* p) { return *p; }
#define CUDAOPS_NARROW_STORE(name, T) __device__ inline void name(T* p, T v) { *p = v; }
#define CUDAOPS_NARROW_SHUFFLE(name, T, P, N)                                                                         \
  __device__ inline T name(unsigned mask, T v, N from, int width = 32) {                                            \
    v.bits = ::name(mask, v.bits, from, width);                                                                     \
    return v;                                                                                                       \
  }                                                                                                                 \
  __device__ inline P name(unsigned mask, P v, N from, int width = 32) {                                            \
    return P(name(mask, v.x, from, width), name(mask, v.y, from, width));                                           \
  }
#define CUDAOPS_NARROW_MEMORY(T)                                                                                      \
  CUDAOPS_NARROW_LOAD(__ldg, T) CUDAOPS_NARROW_LOAD(__ldca, T) CUDAOPS_NARROW_LOAD(__ldcg, T)                             \
  CUDAOPS_NARROW_LOAD(__ldcs, T) CUDAOPS_NARROW_LOAD(__ldcv, T) CUDAOPS_NARROW_LOAD(__ldlu, T)                            \
  CUDAOPS_NARROW_STORE(__stwb, T) CUDAOPS_NARROW_STORE(__stcg, T)                                                       \
  CUDAOPS_NARROW_STORE(__stcs, T) CUDAOPS_NARROW_STORE(__stwt, T)
#define CUDAOPS_MACHINE(T, P, text)                                                                                 \
  CUDAOPS_NARROW_MEMORY(T)                                                                                            \
  CUDAOPS_NARROW_MEMORY(P)                                                                                            \
  CUDAOPS_NARROW_SHUFFLE(__shfl_sync, T, P, int)                                                                      \
  CUDAOPS_NARROW_SHUFFLE(__shfl_up_sync, T, P, unsigned)                                                              \
  CUDAOPS_NARROW_SHUFFLE(__shfl_down_sync, T, P, unsigned)                                                            \
  CUDAOPS_NARROW_SHUFFLE(__shfl_xor_sync, T, P, int)                                                                  \
  __device__ inline T atomicAdd(T* p, T v) { return T(::atomicAdd(&p->bits, v.bits)); }                             \
  __device__ inline P atomicAdd(P* p, P v) { return P(atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)); }

#include "cudaops_widened.h"

namespace cudaops {
namespace wide {
#include "cudaops/half.h"
#include "cudaops/bfloat16.h"
}  // namespace wide
}  // namespace cudaops

#define __half ::cudaops::wide::__half
#define half ::cudaops::wide::half
#define __half2 ::cudaops::wide::__half2
#define half2 ::cudaops::wide::half2
#define nv_half ::cudaops::wide::nv_half
#define nv_half2 ::cudaops::wide::nv_half2
#define __half_raw ::cudaops::wide::__half_raw
#define __half2_raw ::cudaops::wide::__half2_raw
#define __nv_bfloat16 ::cudaops::wide::__nv_bfloat16
#define nv_bfloat16 ::cudaops::wide::nv_bfloat16
#define __nv_bfloat162 ::cudaops::wide::__nv_bfloat162
#define nv_bfloat162 ::cudaops::wide::nv_bfloat162
#define __nv_bfloat16_raw ::cudaops::wide::__nv_bfloat16_raw
#define __nv_bfloat162_raw ::cudaops::wide::__nv_bfloat162_raw
// What has an argument of these types is found beside them; what only makes one is not.
#define __float2half ::cudaops::wide::__float2half
#define __double2half ::cudaops::wide::__double2half
#define __float2half_rn ::cudaops::wide::__float2half_rn
#define __float2half_rz ::cudaops::wide::__float2half_rz
#define __float2half_rd ::cudaops::wide::__float2half_rd
#define __float2half_ru ::cudaops::wide::__float2half_ru
#define __short2half_rn ::cudaops::wide::__short2half_rn
#define __short2half_rz ::cudaops::wide::__short2half_rz
#define __short2half_rd ::cudaops::wide::__short2half_rd
#define __short2half_ru ::cudaops::wide::__short2half_ru
#define __ushort2half_rn ::cudaops::wide::__ushort2half_rn
#define __ushort2half_rz ::cudaops::wide::__ushort2half_rz
#define __ushort2half_rd ::cudaops::wide::__ushort2half_rd
#define __ushort2half_ru ::cudaops::wide::__ushort2half_ru
#define __int2half_rn ::cudaops::wide::__int2half_rn
#define __int2half_rz ::cudaops::wide::__int2half_rz
#define __int2half_rd ::cudaops::wide::__int2half_rd
#define __int2half_ru ::cudaops::wide::__int2half_ru
#define __uint2half_rn ::cudaops::wide::__uint2half_rn
#define __uint2half_rz ::cudaops::wide::__uint2half_rz
#define __uint2half_rd ::cudaops::wide::__uint2half_rd
#define __uint2half_ru ::cudaops::wide::__uint2half_ru
#define __ll2half_rn ::cudaops::wide::__ll2half_rn
#define __ll2half_rz ::cudaops::wide::__ll2half_rz
#define __ll2half_rd ::cudaops::wide::__ll2half_rd
#define __ll2half_ru ::cudaops::wide::__ll2half_ru
#define __ull2half_rn ::cudaops::wide::__ull2half_rn
#define __ull2half_rz ::cudaops::wide::__ull2half_rz
#define __ull2half_rd ::cudaops::wide::__ull2half_rd
#define __ull2half_ru ::cudaops::wide::__ull2half_ru
#define __float2half2_rn ::cudaops::wide::__float2half2_rn
#define __floats2half2_rn ::cudaops::wide::__floats2half2_rn
#define __float22half2_rn ::cudaops::wide::__float22half2_rn
#define __ushort_as_half ::cudaops::wide::__ushort_as_half
#define __short_as_half ::cudaops::wide::__short_as_half
#define __halves2half2 ::cudaops::wide::__halves2half2
#define make_half2 ::cudaops::wide::make_half2
#define __half2half2 ::cudaops::wide::__half2half2
#define __float2bfloat16 ::cudaops::wide::__float2bfloat16
#define __double2bfloat16 ::cudaops::wide::__double2bfloat16
#define __float2bfloat16_rn ::cudaops::wide::__float2bfloat16_rn
#define __float2bfloat16_rz ::cudaops::wide::__float2bfloat16_rz
#define __float2bfloat16_rd ::cudaops::wide::__float2bfloat16_rd
#define __float2bfloat16_ru ::cudaops::wide::__float2bfloat16_ru
#define __short2bfloat16_rn ::cudaops::wide::__short2bfloat16_rn
#define __short2bfloat16_rz ::cudaops::wide::__short2bfloat16_rz
#define __short2bfloat16_rd ::cudaops::wide::__short2bfloat16_rd
#define __short2bfloat16_ru ::cudaops::wide::__short2bfloat16_ru
#define __ushort2bfloat16_rn ::cudaops::wide::__ushort2bfloat16_rn
#define __ushort2bfloat16_rz ::cudaops::wide::__ushort2bfloat16_rz
#define __ushort2bfloat16_rd ::cudaops::wide::__ushort2bfloat16_rd
#define __ushort2bfloat16_ru ::cudaops::wide::__ushort2bfloat16_ru
#define __int2bfloat16_rn ::cudaops::wide::__int2bfloat16_rn
#define __int2bfloat16_rz ::cudaops::wide::__int2bfloat16_rz
#define __int2bfloat16_rd ::cudaops::wide::__int2bfloat16_rd
#define __int2bfloat16_ru ::cudaops::wide::__int2bfloat16_ru
#define __uint2bfloat16_rn ::cudaops::wide::__uint2bfloat16_rn
#define __uint2bfloat16_rz ::cudaops::wide::__uint2bfloat16_rz
#define __uint2bfloat16_rd ::cudaops::wide::__uint2bfloat16_rd
#define __uint2bfloat16_ru ::cudaops::wide::__uint2bfloat16_ru
#define __ll2bfloat16_rn ::cudaops::wide::__ll2bfloat16_rn
#define __ll2bfloat16_rz ::cudaops::wide::__ll2bfloat16_rz
#define __ll2bfloat16_rd ::cudaops::wide::__ll2bfloat16_rd
#define __ll2bfloat16_ru ::cudaops::wide::__ll2bfloat16_ru
#define __ull2bfloat16_rn ::cudaops::wide::__ull2bfloat16_rn
#define __ull2bfloat16_rz ::cudaops::wide::__ull2bfloat16_rz
#define __ull2bfloat16_rd ::cudaops::wide::__ull2bfloat16_rd
#define __ull2bfloat16_ru ::cudaops::wide::__ull2bfloat16_ru
#define __float2bfloat162_rn ::cudaops::wide::__float2bfloat162_rn
#define __floats2bfloat162_rn ::cudaops::wide::__floats2bfloat162_rn
#define __float22bfloat162_rn ::cudaops::wide::__float22bfloat162_rn
#define __ushort_as_bfloat16 ::cudaops::wide::__ushort_as_bfloat16
#define __short_as_bfloat16 ::cudaops::wide::__short_as_bfloat16
#define __halves2bfloat162 ::cudaops::wide::__halves2bfloat162
#define make_bfloat162 ::cudaops::wide::make_bfloat162
#define __bfloat162bfloat162 ::cudaops::wide::__bfloat162bfloat162
