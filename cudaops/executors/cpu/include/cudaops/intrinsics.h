// Integer, bit and cast intrinsics, cached loads, and the mixed min and max of CUDA's headers.
#pragma once
#include "macros_off.h"
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#define CUDAOPS_FN static inline __attribute__((always_inline))
// One instruction on a GPU and many here: it stays a call, whose cost `timemodel.costs` knows.
#define CUDAOPS_ONE static __attribute__((noinline, const, unused))

CUDAOPS_FN int __popc(unsigned x) { return __builtin_popcount(x); }
CUDAOPS_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
CUDAOPS_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
CUDAOPS_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
CUDAOPS_FN int __ffs(int x) { return __builtin_ffs(x); }
CUDAOPS_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
CUDAOPS_ONE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
CUDAOPS_FN unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
CUDAOPS_FN int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
CUDAOPS_FN unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
CUDAOPS_FN int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
CUDAOPS_FN unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
CUDAOPS_FN long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
CUDAOPS_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
CUDAOPS_FN unsigned __sad(int a, int b, unsigned c) { return (unsigned)std::abs((long long)a - b) + c; }
CUDAOPS_FN unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
CUDAOPS_FN int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
CUDAOPS_FN int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
CUDAOPS_FN unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
CUDAOPS_ONE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)((((unsigned long long)hi << 32 | lo) << (n & 31)) >> 32);
}
CUDAOPS_ONE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}
// The prmt instruction: selector nibble's low three bits pick a byte, its high bit spreads the sign.
CUDAOPS_ONE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned pick = selector >> (4 * i) & 15u;
    unsigned byte = (unsigned)(both >> (8 * (pick & 7u))) & 255u;
    if (pick & 8u) byte = byte & 128u ? 255u : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
CUDAOPS_ONE int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += (signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i));
  return c;
}
CUDAOPS_ONE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255u) * (b >> (8 * i) & 255u);
  return c;
}

#define CUDAOPS_BITCAST(name, To, From)                                                  \
  CUDAOPS_FN To name(From v) { To r; std::memcpy(&r, &v, sizeof r); return r; }
CUDAOPS_BITCAST(__float_as_int, int, float)
CUDAOPS_BITCAST(__float_as_uint, unsigned, float)
CUDAOPS_BITCAST(__int_as_float, float, int)
CUDAOPS_BITCAST(__uint_as_float, float, unsigned)
CUDAOPS_BITCAST(__double_as_longlong, long long, double)
CUDAOPS_BITCAST(__longlong_as_double, double, long long)
#undef CUDAOPS_BITCAST
CUDAOPS_FN int __double2hiint(double v) { return (int)(__double_as_longlong(v) >> 32); }
CUDAOPS_FN int __double2loint(double v) { return (int)__double_as_longlong(v); }
CUDAOPS_FN double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)((unsigned long long)(unsigned)hi << 32 | (unsigned)lo));
}

#define CUDAOPS_CACHED(name)                                                             \
  template <class T> CUDAOPS_FN T name(const T* address) { return *address; }
CUDAOPS_CACHED(__ldg)
CUDAOPS_CACHED(__ldca)
CUDAOPS_CACHED(__ldcg)
CUDAOPS_CACHED(__ldcs)
CUDAOPS_CACHED(__ldlu)
CUDAOPS_CACHED(__ldcv)
#undef CUDAOPS_CACHED
#define CUDAOPS_CACHED(name)                                                             \
  template <class T> CUDAOPS_FN void name(T* address, T value) { *address = value; }
CUDAOPS_CACHED(__stwb)
CUDAOPS_CACHED(__stcg)
CUDAOPS_CACHED(__stcs)
CUDAOPS_CACHED(__stwt)
#undef CUDAOPS_CACHED
#define __builtin_assume(condition) do { if (!(condition)) __builtin_unreachable(); } while (0)
CUDAOPS_FN void __trap() { std::abort(); }
CUDAOPS_FN void __prof_trigger(int) {}

// Overloads as in CUDA's math_functions.hpp: equal types, and the mixed pairs it lists.
#define CUDAOPS_MINMAX(R, A, B)                                                          \
  CUDAOPS_FN R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }                       \
  CUDAOPS_FN R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
#define CUDAOPS_MINMAX_INTEGER(S, U) \
  CUDAOPS_MINMAX(S, S, S) CUDAOPS_MINMAX(U, U, U) CUDAOPS_MINMAX(U, S, U) CUDAOPS_MINMAX(U, U, S)
CUDAOPS_MINMAX_INTEGER(int, unsigned)
CUDAOPS_MINMAX_INTEGER(long, unsigned long)
CUDAOPS_MINMAX_INTEGER(long long, unsigned long long)
// fmin and fmax: the number where the other is not one.
#define CUDAOPS_MINMAX_FLOATING(R, A, B, suffix)                                         \
  CUDAOPS_FN R min(A a, B b) { return __builtin_fmin##suffix((R)a, (R)b); }              \
  CUDAOPS_FN R max(A a, B b) { return __builtin_fmax##suffix((R)a, (R)b); }
CUDAOPS_MINMAX_FLOATING(float, float, float, f)
CUDAOPS_MINMAX_FLOATING(double, double, double, )
CUDAOPS_MINMAX_FLOATING(double, float, double, )
CUDAOPS_MINMAX_FLOATING(double, double, float, )
#undef CUDAOPS_MINMAX_FLOATING
#undef CUDAOPS_MINMAX_INTEGER
#undef CUDAOPS_MINMAX
CUDAOPS_FN unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
CUDAOPS_FN unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
#include "macros_on.h"
