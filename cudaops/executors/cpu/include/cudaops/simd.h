// Integer intrinsics on the two halves or four bytes of a word (CUDA Math API, SIMD intrinsics).
#pragma once
#include "macros_off.h"
#include <algorithm>
#include <cstring>

namespace cudaops {

template <class T, class F>
static inline unsigned each_part(unsigned a, unsigned b, F operation) {
  T x[4 / sizeof(T)], y[4 / sizeof(T)];
  std::memcpy(x, &a, 4), std::memcpy(y, &b, 4);
  for (unsigned i = 0; i < 4 / sizeof(T); ++i) x[i] = (T)operation((long long)x[i], (long long)y[i]);
  std::memcpy(&a, x, 4);
  return a;
}
template <class T, class F>
static inline unsigned sum_of_parts(unsigned a, unsigned b, F operation) {
  T x[4 / sizeof(T)], y[4 / sizeof(T)];
  std::memcpy(x, &a, 4), std::memcpy(y, &b, 4);
  unsigned sum = 0;
  for (unsigned i = 0; i < 4 / sizeof(T); ++i) sum += (unsigned)operation((long long)x[i], (long long)y[i]);
  return sum;
}
template <class T>
static inline long long saturated(long long x) {
  long long least = T(-1) < T(0) ? -(1ll << (8 * sizeof(T) - 1)) : 0, most = least + (1ll << 8 * sizeof(T)) - 1;
  return std::min(std::max(x, least), most);
}

}  // namespace cudaops

#define CUDAOPS_SIMD(name, T, expression)                                                           \
  static inline unsigned name(unsigned a, unsigned b) {                                             \
    return ::cudaops::each_part<T>(a, b, [](long long x, long long y) { return expression; });      \
  }
#define CUDAOPS_SIMD_ONE(name, T, expression)                                                       \
  static inline unsigned name(unsigned a) {                                                         \
    return ::cudaops::each_part<T>(a, 0, [](long long x, long long) { return expression; });        \
  }
#define CUDAOPS_SIMD_COMPARE(width, S, U, word, operation)                                          \
  CUDAOPS_SIMD(__vcmp##word##s##width, S, x operation y ? -1 : 0)                                   \
  CUDAOPS_SIMD(__vcmp##word##u##width, U, x operation y ? -1 : 0)                                   \
  CUDAOPS_SIMD(__vset##word##s##width, S, x operation y)                                            \
  CUDAOPS_SIMD(__vset##word##u##width, U, x operation y)
#define CUDAOPS_SIMD_ALL(width, S, U)                                                               \
  CUDAOPS_SIMD(__vadd##width, U, x + y)                                                             \
  CUDAOPS_SIMD(__vsub##width, U, x - y)                                                             \
  CUDAOPS_SIMD(__vaddss##width, S, ::cudaops::saturated<S>(x + y))                                  \
  CUDAOPS_SIMD(__vaddus##width, U, ::cudaops::saturated<U>(x + y))                                  \
  CUDAOPS_SIMD(__vsubss##width, S, ::cudaops::saturated<S>(x - y))                                  \
  CUDAOPS_SIMD(__vsubus##width, U, ::cudaops::saturated<U>(x - y))                                  \
  CUDAOPS_SIMD(__vmaxs##width, S, std::max(x, y))                                                   \
  CUDAOPS_SIMD(__vmaxu##width, U, std::max(x, y))                                                   \
  CUDAOPS_SIMD(__vmins##width, S, std::min(x, y))                                                   \
  CUDAOPS_SIMD(__vminu##width, U, std::min(x, y))                                                   \
  CUDAOPS_SIMD(__vavgu##width, U, (x + y + 1) >> 1)                                                 \
  CUDAOPS_SIMD(__vavgs##width, S, (x + y + (x + y >= 0)) >> 1)                                      \
  CUDAOPS_SIMD(__vhaddu##width, U, (x + y) >> 1)                                                    \
  CUDAOPS_SIMD(__vabsdiffs##width, S, x > y ? x - y : y - x)                                        \
  CUDAOPS_SIMD(__vabsdiffu##width, U, x > y ? x - y : y - x)                                        \
  CUDAOPS_SIMD_ONE(__vabs##width, S, x < 0 ? -x : x)                                                \
  CUDAOPS_SIMD_ONE(__vabsss##width, S, ::cudaops::saturated<S>(x < 0 ? -x : x))                     \
  CUDAOPS_SIMD_ONE(__vneg##width, S, -x)                                                            \
  CUDAOPS_SIMD_ONE(__vnegss##width, S, ::cudaops::saturated<S>(-x))                                 \
  CUDAOPS_SIMD(__vcmpeq##width, U, x == y ? -1 : 0)                                                 \
  CUDAOPS_SIMD(__vcmpne##width, U, x != y ? -1 : 0)                                                 \
  CUDAOPS_SIMD(__vseteq##width, U, x == y)                                                          \
  CUDAOPS_SIMD(__vsetne##width, U, x != y)                                                          \
  CUDAOPS_SIMD_COMPARE(width, S, U, gt, >)                                                          \
  CUDAOPS_SIMD_COMPARE(width, S, U, ge, >=)                                                         \
  CUDAOPS_SIMD_COMPARE(width, S, U, lt, <)                                                          \
  CUDAOPS_SIMD_COMPARE(width, S, U, le, <=)                                                         \
  static inline unsigned __vsads##width(unsigned a, unsigned b) {                                   \
    return ::cudaops::sum_of_parts<S>(a, b, [](long long x, long long y) { return x > y ? x - y : y - x; }); \
  }                                                                                                 \
  static inline unsigned __vsadu##width(unsigned a, unsigned b) {                                   \
    return ::cudaops::sum_of_parts<U>(a, b, [](long long x, long long y) { return x > y ? x - y : y - x; }); \
  }
CUDAOPS_SIMD_ALL(2, short, unsigned short)
CUDAOPS_SIMD_ALL(4, signed char, unsigned char)
#undef CUDAOPS_SIMD_ALL
#undef CUDAOPS_SIMD_COMPARE
#undef CUDAOPS_SIMD_ONE
#undef CUDAOPS_SIMD
#include "macros_on.h"
