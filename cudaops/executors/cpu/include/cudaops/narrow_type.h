// One type of 16 bits and its pairs: storage, operators, arithmetic, comparisons. Included once for half
// and once for bfloat16, by both executors: the includer names types and format, and CUDAOPS_API.
// Arithmetic is that of single precision, rounded once: exact enough for +, -, *, / and sqrt (24 bits are
// at least 2 * 11 + 2); a fused multiply-add is rounded to odd in between. Where `float` says double,
// everything is done in double and nothing is rounded.
#include "macros_off.h"

struct alignas(2) CUDAOPS_RAW { unsigned short x; };
struct alignas(4) CUDAOPS_RAW_PAIR { unsigned short x, y; };

struct alignas(sizeof(::cudaops::narrow_storage<CUDAOPS_FORMAT>)) CUDAOPS_T {
  ::cudaops::narrow_storage<CUDAOPS_FORMAT> bits;
  CUDAOPS_T() = default;
  CUDAOPS_MEMBER CUDAOPS_T(float x) : bits(::cudaops::pack<CUDAOPS_FORMAT>(x)) {}
  template <class N, class = CUDAOPS_IF_ARITHMETIC(N)>
  CUDAOPS_MEMBER CUDAOPS_T(N x) : bits(::cudaops::pack_rounded<CUDAOPS_FORMAT, ::cudaops::Rounding::Nearest>(x)) {}
  CUDAOPS_MEMBER CUDAOPS_T(const CUDAOPS_RAW& raw) : bits(::cudaops::from_narrow_bits<CUDAOPS_FORMAT>(raw.x)) {}
#ifdef CUDAOPS_OTHER
  CUDAOPS_MEMBER explicit CUDAOPS_T(CUDAOPS_OTHER other) : CUDAOPS_T((float)other) {}
  CUDAOPS_MEMBER explicit operator CUDAOPS_OTHER() const { return CUDAOPS_OTHER((float)*this); }
#endif
  CUDAOPS_MEMBER operator float() const { return ::cudaops::unpack<CUDAOPS_FORMAT>(bits); }
  CUDAOPS_MEMBER operator CUDAOPS_RAW() const { return CUDAOPS_RAW{::cudaops::narrow_bits<CUDAOPS_FORMAT>(bits)}; }
  template <class N, class = CUDAOPS_IF_INTEGRAL(N)>
  CUDAOPS_MEMBER explicit operator N() const { return ::cudaops::to_integer<N>((float)*this); }
  template <::cudaops::Rounding mode, class N>
  CUDAOPS_MEMBER static CUDAOPS_T rounded(N x) {
    CUDAOPS_T made;
    made.bits = ::cudaops::pack_rounded<CUDAOPS_FORMAT, mode>(x);
    return made;
  }
  CUDAOPS_MEMBER CUDAOPS_T& operator+=(CUDAOPS_T o) { return *this = CUDAOPS_T((float)*this + (float)o); }
  CUDAOPS_MEMBER CUDAOPS_T& operator-=(CUDAOPS_T o) { return *this = CUDAOPS_T((float)*this - (float)o); }
  CUDAOPS_MEMBER CUDAOPS_T& operator*=(CUDAOPS_T o) { return *this = CUDAOPS_T((float)*this * (float)o); }
  CUDAOPS_MEMBER CUDAOPS_T& operator/=(CUDAOPS_T o) { return *this = CUDAOPS_T((float)*this / (float)o); }
  CUDAOPS_MEMBER CUDAOPS_T& operator++() { return *this = CUDAOPS_T((float)*this + 1); }
  CUDAOPS_MEMBER CUDAOPS_T& operator--() { return *this = CUDAOPS_T((float)*this - 1); }
  CUDAOPS_MEMBER CUDAOPS_T operator++(int) { CUDAOPS_T old = *this; ++*this; return old; }
  CUDAOPS_MEMBER CUDAOPS_T operator--(int) { CUDAOPS_T old = *this; --*this; return old; }
};

struct alignas(2 * sizeof(CUDAOPS_T)) CUDAOPS_P {
  CUDAOPS_T x, y;
  CUDAOPS_P() = default;
  CUDAOPS_MEMBER CUDAOPS_P(CUDAOPS_T a, CUDAOPS_T b) : x(a), y(b) {}
  CUDAOPS_MEMBER CUDAOPS_P(const CUDAOPS_RAW_PAIR& raw) : x(CUDAOPS_RAW{raw.x}), y(CUDAOPS_RAW{raw.y}) {}
  CUDAOPS_MEMBER operator CUDAOPS_RAW_PAIR() const { return CUDAOPS_RAW_PAIR{CUDAOPS_RAW(x).x, CUDAOPS_RAW(y).x}; }
};

CUDAOPS_API CUDAOPS_T operator+(CUDAOPS_T a) { return a; }
CUDAOPS_API CUDAOPS_T operator-(CUDAOPS_T a) { return CUDAOPS_T(-(float)a); }
CUDAOPS_API CUDAOPS_T __hneg(CUDAOPS_T a) { return -a; }
CUDAOPS_API CUDAOPS_T __habs(CUDAOPS_T a) { return CUDAOPS_T(fabsf((float)a)); }

// `name_rn` is never contracted into a multiply-add; here no rounded operation is.
#define CUDAOPS_OPERATION(op, name, name2)                                                                          \
  CUDAOPS_API CUDAOPS_T operator op(CUDAOPS_T a, CUDAOPS_T b) { return CUDAOPS_T((float)a op (float)b); }           \
  CUDAOPS_API CUDAOPS_T name(CUDAOPS_T a, CUDAOPS_T b) { return a op b; }                                           \
  CUDAOPS_API CUDAOPS_P operator op(CUDAOPS_P a, CUDAOPS_P b) { return CUDAOPS_P(a.x op b.x, a.y op b.y); }         \
  CUDAOPS_API CUDAOPS_P& operator op##=(CUDAOPS_P& a, CUDAOPS_P b) { return a = a op b; }                           \
  CUDAOPS_API CUDAOPS_P name2(CUDAOPS_P a, CUDAOPS_P b) { return a op b; }
#define CUDAOPS_VARIANTS(op, name)                                                                                  \
  CUDAOPS_OPERATION(op, __h##name, __h##name##2)                                                                    \
  CUDAOPS_API CUDAOPS_T __h##name##_rn(CUDAOPS_T a, CUDAOPS_T b) { return a op b; }                                 \
  CUDAOPS_API CUDAOPS_T __h##name##_sat(CUDAOPS_T a, CUDAOPS_T b) { return CUDAOPS_T(__saturatef((float)a op (float)b)); } \
  CUDAOPS_API CUDAOPS_P __h##name##2_rn(CUDAOPS_P a, CUDAOPS_P b) { return a op b; }                                \
  CUDAOPS_API CUDAOPS_P __h##name##2_sat(CUDAOPS_P a, CUDAOPS_P b) {                                                \
    return CUDAOPS_P(__h##name##_sat(a.x, b.x), __h##name##_sat(a.y, b.y));                                         \
  }
CUDAOPS_VARIANTS(+, add)
CUDAOPS_VARIANTS(-, sub)
CUDAOPS_VARIANTS(*, mul)
CUDAOPS_OPERATION(/, __hdiv, __h2div)
#undef CUDAOPS_VARIANTS
#undef CUDAOPS_OPERATION
CUDAOPS_API CUDAOPS_P operator+(CUDAOPS_P a) { return a; }
CUDAOPS_API CUDAOPS_P operator-(CUDAOPS_P a) { return CUDAOPS_P(-a.x, -a.y); }
CUDAOPS_API CUDAOPS_P& operator++(CUDAOPS_P& a) { ++a.x; ++a.y; return a; }
CUDAOPS_API CUDAOPS_P& operator--(CUDAOPS_P& a) { --a.x; --a.y; return a; }
CUDAOPS_API CUDAOPS_P operator++(CUDAOPS_P& a, int) { CUDAOPS_P old = a; ++a; return old; }
CUDAOPS_API CUDAOPS_P operator--(CUDAOPS_P& a, int) { CUDAOPS_P old = a; --a; return old; }
CUDAOPS_API CUDAOPS_P __hneg2(CUDAOPS_P a) { return -a; }
CUDAOPS_API CUDAOPS_P __habs2(CUDAOPS_P a) { return CUDAOPS_P(__habs(a.x), __habs(a.y)); }

// One operation of a GPU: a multiply-add of single precision, and what brings it to one rounding.
CUDAOPS_API float CUDAOPS_NAME(cudaops_, _fma)(CUDAOPS_T a, CUDAOPS_T b, CUDAOPS_T c) {
  return ::cudaops::fused_once(fmaf((float)a, (float)b, (float)c), a, b, c);
}
#define CUDAOPS_FMA(suffix, of)                                                                                     \
  CUDAOPS_API CUDAOPS_T __hfma##suffix(CUDAOPS_T a, CUDAOPS_T b, CUDAOPS_T c) {                                     \
    float sum = CUDAOPS_NAME(cudaops_, _fma)(a, b, c);                                                              \
    return CUDAOPS_T(of);                                                                                           \
  }                                                                                                                 \
  CUDAOPS_API CUDAOPS_P __hfma2##suffix(CUDAOPS_P a, CUDAOPS_P b, CUDAOPS_P c) {                                    \
    return CUDAOPS_P(__hfma##suffix(a.x, b.x, c.x), __hfma##suffix(a.y, b.y, c.y));                                 \
  }
CUDAOPS_FMA(, sum)
CUDAOPS_FMA(_sat, __saturatef(sum))
CUDAOPS_FMA(_relu, sum > 0 || sum != sum ? sum : 0)
#undef CUDAOPS_FMA
CUDAOPS_API CUDAOPS_P __hcmadd(CUDAOPS_P a, CUDAOPS_P b, CUDAOPS_P c) {
  CUDAOPS_T real = __hfma(a.x, b.x, c.x), imaginary = __hfma(a.x, b.y, c.y);
  return CUDAOPS_P(__hfma(__hneg(a.y), b.y, real), __hfma(a.y, b.x, imaginary));
}

// Ordered comparisons are false where one is not a number, those with a `u` true.
#define CUDAOPS_COMPARE(name, expression)                                                                           \
  CUDAOPS_API bool __h##name(CUDAOPS_T p, CUDAOPS_T q) { float a = p, b = q; return expression; }                   \
  CUDAOPS_API CUDAOPS_P __h##name##2(CUDAOPS_P a, CUDAOPS_P b) {                                                    \
    return CUDAOPS_P(CUDAOPS_T(__h##name(a.x, b.x) ? 1.0f : 0.0f), CUDAOPS_T(__h##name(a.y, b.y) ? 1.0f : 0.0f));   \
  }                                                                                                                 \
  CUDAOPS_API bool __hb##name##2(CUDAOPS_P a, CUDAOPS_P b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }   \
  CUDAOPS_API unsigned __h##name##2_mask(CUDAOPS_P a, CUDAOPS_P b) {                                                \
    return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);                         \
  }
CUDAOPS_COMPARE(eq, a == b)
CUDAOPS_COMPARE(ne, a < b || a > b)
CUDAOPS_COMPARE(lt, a < b)
CUDAOPS_COMPARE(le, a <= b)
CUDAOPS_COMPARE(gt, a > b)
CUDAOPS_COMPARE(ge, a >= b)
CUDAOPS_COMPARE(equ, !(a < b || a > b))
CUDAOPS_COMPARE(neu, a != b)
CUDAOPS_COMPARE(ltu, !(a >= b))
CUDAOPS_COMPARE(leu, !(a > b))
CUDAOPS_COMPARE(gtu, !(a <= b))
CUDAOPS_COMPARE(geu, !(a < b))
#undef CUDAOPS_COMPARE
#define CUDAOPS_RELATION(op, name)                                                                                  \
  CUDAOPS_API bool operator op(CUDAOPS_T a, CUDAOPS_T b) { return (float)a op (float)b; }                           \
  CUDAOPS_API bool operator op(CUDAOPS_P a, CUDAOPS_P b) { return name(a, b); }
CUDAOPS_RELATION(==, __hbeq2)
CUDAOPS_RELATION(!=, __hbneu2)
CUDAOPS_RELATION(<, __hblt2)
CUDAOPS_RELATION(<=, __hble2)
CUDAOPS_RELATION(>, __hbgt2)
CUDAOPS_RELATION(>=, __hbge2)
#undef CUDAOPS_RELATION
CUDAOPS_API bool __hisnan(CUDAOPS_T a) { return (float)a != (float)a; }
CUDAOPS_API CUDAOPS_P __hisnan2(CUDAOPS_P a) {
  return CUDAOPS_P(CUDAOPS_T(__hisnan(a.x) ? 1.0f : 0.0f), CUDAOPS_T(__hisnan(a.y) ? 1.0f : 0.0f));
}
CUDAOPS_API int __hisinf(CUDAOPS_T h) {
  float a = h, left = a - a;
  return left == left || a != a ? 0 : a < 0 ? -1 : 1;
}

// The number where the other is none (`_nan`: none where one is none).
#define CUDAOPS_EXTREME(name, kept)                                                                             \
  CUDAOPS_API CUDAOPS_T __h##name(CUDAOPS_T p, CUDAOPS_T q) {                                                       \
    float a = p, b = q;                                                                                             \
    return CUDAOPS_T(::cudaops::kept(a, b, f##name##f(a, b)));                                                  \
  }                                                                                                                 \
  CUDAOPS_API CUDAOPS_T __h##name##_nan(CUDAOPS_T a, CUDAOPS_T b) {                                                 \
    return __hisnan(a) ? CUDAOPS_T((float)a) : __hisnan(b) ? CUDAOPS_T((float)b) : __h##name(a, b);                 \
  }                                                                                                                 \
  CUDAOPS_API CUDAOPS_P __h##name##2(CUDAOPS_P a, CUDAOPS_P b) { return CUDAOPS_P(__h##name(a.x, b.x), __h##name(a.y, b.y)); } \
  CUDAOPS_API CUDAOPS_P __h##name##2_nan(CUDAOPS_P a, CUDAOPS_P b) {                                                \
    return CUDAOPS_P(__h##name##_nan(a.x, b.x), __h##name##_nan(a.y, b.y));                                         \
  }
CUDAOPS_EXTREME(max, larger_number)
CUDAOPS_EXTREME(min, smaller_number)
#undef CUDAOPS_EXTREME

CUDAOPS_API CUDAOPS_P __lowhigh2highlow(CUDAOPS_P a) { return CUDAOPS_P(a.y, a.x); }
CUDAOPS_API float __low2float(CUDAOPS_P a) { return a.x; }
CUDAOPS_API float __high2float(CUDAOPS_P a) { return a.y; }
#include "macros_on.h"
