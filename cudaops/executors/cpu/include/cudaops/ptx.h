// Meaning of the inline PTX that a rewrite may hold: `program/ptx_asm.py` writes calls of these in
// the place of each asm statement. Source: PTX ISA 9.0, chapter 9. Approximate functions are computed
// as exactly as the ordinary ones, as `__expf` is in device_math.h.
#pragma once
#include "macros_off.h"
#include <cfloat>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "device_math.h"
#include "intrinsics.h"
#include "vector_types.h"

namespace cudaops_ptx {

using u16 = unsigned short;
using s32 = int;
using u32 = unsigned;
using s64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;
using pred = bool;

template <class To, class From>
CUDAOPS_FN To as(From value) {
  static_assert(sizeof(To) == sizeof(From), "a register of another width");
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// Operands by constraint: `nvcc` takes these types and no others.
template <class T> struct whole {
  static constexpr bool value = std::is_integral<T>::value || std::is_enum<T>::value;
};
#define CUDAOPS_OPERAND(letter, Bits, fits)                                                  \
  template <class T> CUDAOPS_FN Bits in_##letter(T value) {                                  \
    static_assert((fits) && sizeof(T) == sizeof(Bits), "a type that constraint \"" #letter "\" does not take"); \
    return as<Bits>(value);                                                                  \
  }                                                                                          \
  template <class T> CUDAOPS_FN void out_##letter(T& to, Bits bits) {                        \
    static_assert((fits) && sizeof(T) == sizeof(Bits), "a type that constraint \"" #letter "\" does not take"); \
    to = as<T>(bits);                                                                        \
  }
CUDAOPS_OPERAND(h, u16, whole<T>::value)
CUDAOPS_OPERAND(r, u32, whole<T>::value)
CUDAOPS_OPERAND(l, u64, whole<T>::value || std::is_pointer<T>::value)
CUDAOPS_OPERAND(f, u32, (std::is_same<T, f32>::value))
CUDAOPS_OPERAND(d, u64, (std::is_same<T, f64>::value))
#undef CUDAOPS_OPERAND

CUDAOPS_FN f32 ftz(f32 x) { return __builtin_fabsf(x) < FLT_MIN ? __builtin_copysignf(0.0f, x) : x; }
CUDAOPS_FN f32 sat(f32 x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

CUDAOPS_FN f32 rsqrt_f32(f32 x) { return rsqrtf(x); }
CUDAOPS_FN f32 rcp_f32(f32 x) { return 1.0f / x; }
CUDAOPS_FN f32 sqrt_f32(f32 x) { return sqrtf(x); }
CUDAOPS_FN f32 ex2_f32(f32 x) { return exp2f(x); }
CUDAOPS_FN f32 lg2_f32(f32 x) { return log2f(x); }
CUDAOPS_FN f32 sin_f32(f32 x) { return sinf(x); }
CUDAOPS_FN f32 cos_f32(f32 x) { return cosf(x); }
CUDAOPS_FN f32 tanh_f32(f32 x) { return tanhf(x); }
CUDAOPS_FN f32 div_f32(f32 a, f32 b) { return a / b; }
CUDAOPS_FN f32 div_approx_f32(f32 a, f32 b) { return __fdividef(a, b); }
CUDAOPS_FN f32 add_f32(f32 a, f32 b) { return __fadd_rn(a, b); }
CUDAOPS_FN f32 sub_f32(f32 a, f32 b) { return __fsub_rn(a, b); }
CUDAOPS_FN f32 mul_f32(f32 a, f32 b) { return __fmul_rn(a, b); }
CUDAOPS_FN f32 fma_f32(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
CUDAOPS_FN f64 add_f64(f64 a, f64 b) { return __dadd_rn(a, b); }
CUDAOPS_FN f64 sub_f64(f64 a, f64 b) { return __dsub_rn(a, b); }
CUDAOPS_FN f64 mul_f64(f64 a, f64 b) { return __dmul_rn(a, b); }
CUDAOPS_FN f64 fma_f64(f64 a, f64 b, f64 c) { return fma(a, b, c); }
CUDAOPS_FN f64 div_f64(f64 a, f64 b) { return a / b; }
CUDAOPS_FN f64 rcp_f64(f64 x) { return 1.0 / x; }
CUDAOPS_FN f64 sqrt_f64(f64 x) { return sqrt(x); }

// The number where the other is none; of two zeros the negative one is smaller.
template <class T> CUDAOPS_FN T smaller(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T> CUDAOPS_FN T larger(T a, T b) { return -smaller(-a, -b); }
#define CUDAOPS_SIGNS(T, suffix)                                                             \
  CUDAOPS_FN T abs_##suffix(T x) { return __builtin_fabs(x); }                               \
  CUDAOPS_FN T neg_##suffix(T x) { return -x; }                                              \
  CUDAOPS_FN T min_##suffix(T a, T b) { return smaller(a, b); }                              \
  CUDAOPS_FN T max_##suffix(T a, T b) { return larger(a, b); }
CUDAOPS_SIGNS(f32, f32)
CUDAOPS_SIGNS(f64, f64)
#undef CUDAOPS_SIGNS
CUDAOPS_FN f32 min_nan_f32(f32 a, f32 b) { return a != a || b != b ? __builtin_nanf("") : smaller(a, b); }
CUDAOPS_FN f32 max_nan_f32(f32 a, f32 b) { return a != a || b != b ? __builtin_nanf("") : larger(a, b); }
CUDAOPS_FN f32 copysign_f32(f32 sign, f32 size) { return __builtin_copysignf(size, sign); }

CUDAOPS_FN u32 mul_hi(u32 a, u32 b) { return __umulhi(a, b); }
CUDAOPS_FN s32 mul_hi(s32 a, s32 b) { return __mulhi(a, b); }
CUDAOPS_FN u64 mul_hi(u64 a, u64 b) { return __umul64hi(a, b); }
CUDAOPS_FN s64 mul_hi(s64 a, s64 b) { return __mul64hi(a, b); }
template <class T> CUDAOPS_FN T mad_hi(T a, T b, T c) {
  using U = typename std::make_unsigned<T>::type;
  return (T)((U)mul_hi(a, b) + (U)c);
}
CUDAOPS_FN u32 magnitude(s32 x) { return x < 0 ? 0u - (u32)x : (u32)x; }
CUDAOPS_FN u64 magnitude(s64 x) { return x < 0 ? 0ull - (u64)x : (u64)x; }
template <class T> CUDAOPS_FN u32 sad(T a, T b, u32 c) { return c + (a > b ? (u32)a - (u32)b : (u32)b - (u32)a); }

// Shifts by the width or more leave zeros, or signs.
template <class T> CUDAOPS_FN T shl(T a, u32 n) { return n >= 8 * sizeof(T) ? (T)0 : (T)(a << n); }
template <class T> CUDAOPS_FN T shr(T a, u32 n) {
  constexpr u32 width = 8 * sizeof(T);
  return n >= width ? (a < 0 ? (T)-1 : (T)0) : (T)(a >> n);
}
CUDAOPS_FN u32 shf_l_wrap(u32 a, u32 b, u32 n) { return (u32)((((u64)b << 32 | a) << (n & 31)) >> 32); }
CUDAOPS_FN u32 shf_r_wrap(u32 a, u32 b, u32 n) { return (u32)(((u64)b << 32 | a) >> (n & 31)); }
CUDAOPS_FN u32 shf_l_clamp(u32 a, u32 b, u32 n) { return n >= 32 ? a : shf_l_wrap(a, b, n); }
CUDAOPS_FN u32 shf_r_clamp(u32 a, u32 b, u32 n) { return n >= 32 ? b : shf_r_wrap(a, b, n); }

// Fields: position and length are the lowest bytes of their registers.
template <class U> CUDAOPS_FN U field(u32 position, u32 length) {
  constexpr u32 width = 8 * sizeof(U);
  u32 room = position < width ? width - position : 0;
  u32 taken = length < room ? length : room;
  return taken >= width ? ~(U)0 : ((U)1 << taken) - 1;
}
template <class T> CUDAOPS_FN T bfe(T a, u32 position, u32 length) {
  using U = typename std::make_unsigned<T>::type;
  constexpr u32 width = 8 * sizeof(T);
  position &= 255u;
  length &= 255u;
  U mask = field<U>(position, length), bits = position < width ? ((U)a >> position) & mask : 0;
  if (std::is_unsigned<T>::value || length == 0) return (T)bits;
  u32 top = position + length - 1;
  bool sign = ((U)a >> (top < width ? top : width - 1)) & 1;
  return (T)(sign ? bits | ~mask : bits);
}
template <class U> CUDAOPS_FN U bfi(U a, U b, u32 position, u32 length) {
  position &= 255u;
  length &= 255u;
  if (position >= 8 * sizeof(U)) return b;
  U mask = field<U>(position, length) << position;
  return (b & ~mask) | ((a << position) & mask);
}
CUDAOPS_FN u32 popc(u32 x) { return (u32)__popc(x); }
CUDAOPS_FN u32 popc(u64 x) { return (u32)__popcll(x); }
CUDAOPS_FN u32 clz(u32 x) { return (u32)__clz((s32)x); }
CUDAOPS_FN u32 clz(u64 x) { return (u32)__clzll((s64)x); }
CUDAOPS_FN u32 brev(u32 x) { return __brev(x); }
CUDAOPS_FN u64 brev(u64 x) { return __brevll(x); }
CUDAOPS_FN u32 prmt(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
CUDAOPS_FN u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  for (u32 i = 0; i < 8; ++i)
    if (table >> i & 1u) result |= (i & 4u ? a : ~a) & (i & 2u ? b : ~b) & (i & 1u ? c : ~c);
  return result;
}
template <int SIGNED_A, int SIGNED_B> CUDAOPS_FN u32 dp4a(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 4; ++i) {
    s32 x = (s32)(a >> 8 * i & 255u), y = (s32)(b >> 8 * i & 255u);
    if (SIGNED_A) x = (signed char)x;
    if (SIGNED_B) y = (signed char)y;
    c += (u32)(x * y);
  }
  return c;
}

template <class To, class From> CUDAOPS_FN To rni(From x) { return cudaops::saturating<To>(nearbyint(x)); }
template <class To, class From> CUDAOPS_FN To rzi(From x) { return cudaops::saturating<To>(trunc(x)); }
template <class To, class From> CUDAOPS_FN To rmi(From x) { return cudaops::saturating<To>(floor(x)); }
template <class To, class From> CUDAOPS_FN To rpi(From x) { return cudaops::saturating<To>(ceil(x)); }

// Global memory, several words at once as the built-in vectors of that alignment.
template <class T, int N> struct alignas(N * sizeof(T)) words { T at[N]; };
template <class T, int N> CUDAOPS_FN words<T, N> load(u64 address) { return *(const words<T, N>*)address; }
template <class T, int N> CUDAOPS_FN void store(u64 address, words<T, N> value) { *(words<T, N>*)address = value; }

}  // namespace cudaops_ptx
#include "macros_on.h"
