// Functions and conversions of one type of 16 bits, included after its `narrow_type.h`. A function is
// computed in single precision and rounded once. The suffix of a conversion names its rounding.

#define CUDAOPS_MATH(name, call)                                                                                    \
  CUDAOPS_API CUDAOPS_T h##name(CUDAOPS_T h) { float a = h; return CUDAOPS_T(call); }                               \
  CUDAOPS_API CUDAOPS_P h2##name(CUDAOPS_P h) { return CUDAOPS_P(h##name(h.x), h##name(h.y)); }
CUDAOPS_MATH(sqrt, sqrtf(a))
CUDAOPS_MATH(rsqrt, rsqrtf(a))
CUDAOPS_MATH(rcp, 1 / a)
CUDAOPS_MATH(log, logf(a))
CUDAOPS_MATH(log2, log2f(a))
CUDAOPS_MATH(log10, log10f(a))
CUDAOPS_MATH(exp, expf(a))
CUDAOPS_MATH(exp2, exp2f(a))
CUDAOPS_MATH(exp10, exp10f(a))
CUDAOPS_MATH(sin, sinf(a))
CUDAOPS_MATH(cos, cosf(a))
CUDAOPS_MATH(tanh, tanhf(a))
CUDAOPS_MATH(tanh_approx, tanhf(a))
CUDAOPS_MATH(trunc, truncf(a))
CUDAOPS_MATH(ceil, ceilf(a))
CUDAOPS_MATH(floor, floorf(a))
CUDAOPS_MATH(rint, rintf(a))
#undef CUDAOPS_MATH

CUDAOPS_API float CUDAOPS_NAME(__, 2float)(CUDAOPS_T h) { return h; }
CUDAOPS_API CUDAOPS_T CUDAOPS_NAME(__float2, )(float x) { return CUDAOPS_T(x); }
CUDAOPS_API CUDAOPS_T CUDAOPS_NAME(__double2, )(double x) { return CUDAOPS_T(x); }

#define CUDAOPS_FROM(name, N, mode) \
  CUDAOPS_API CUDAOPS_T name(N x) { return CUDAOPS_T::rounded<::cudaops::Rounding::mode>(x); }
#define CUDAOPS_FROM_ALL(kind, N)                       \
  CUDAOPS_FROM(CUDAOPS_NAME(__##kind##2, _rn), N, Nearest) \
  CUDAOPS_FROM(CUDAOPS_NAME(__##kind##2, _rz), N, Zero) \
  CUDAOPS_FROM(CUDAOPS_NAME(__##kind##2, _rd), N, Down) \
  CUDAOPS_FROM(CUDAOPS_NAME(__##kind##2, _ru), N, Up)
CUDAOPS_FROM_ALL(float, float)
CUDAOPS_FROM_ALL(short, short)
CUDAOPS_FROM_ALL(ushort, unsigned short)
CUDAOPS_FROM_ALL(int, int)
CUDAOPS_FROM_ALL(uint, unsigned)
CUDAOPS_FROM_ALL(ll, long long)
CUDAOPS_FROM_ALL(ull, unsigned long long)
#undef CUDAOPS_FROM_ALL
#undef CUDAOPS_FROM

#define CUDAOPS_TO(kind, N)                                                                                         \
  CUDAOPS_API N CUDAOPS_NAME(__, 2##kind##_rn)(CUDAOPS_T h) { return ::cudaops::to_integer<N>(rintf((float)h)); }   \
  CUDAOPS_API N CUDAOPS_NAME(__, 2##kind##_rz)(CUDAOPS_T h) { return ::cudaops::to_integer<N>((float)h); }          \
  CUDAOPS_API N CUDAOPS_NAME(__, 2##kind##_rd)(CUDAOPS_T h) { return ::cudaops::to_integer<N>(floorf((float)h)); }  \
  CUDAOPS_API N CUDAOPS_NAME(__, 2##kind##_ru)(CUDAOPS_T h) { return ::cudaops::to_integer<N>(ceilf((float)h)); }
CUDAOPS_TO(short, short)
CUDAOPS_TO(ushort, unsigned short)
CUDAOPS_TO(int, int)
CUDAOPS_TO(uint, unsigned)
CUDAOPS_TO(ll, long long)
CUDAOPS_TO(ull, unsigned long long)
#undef CUDAOPS_TO
CUDAOPS_API signed char CUDAOPS_NAME(__, 2char_rz)(CUDAOPS_T h) { return ::cudaops::to_integer<signed char>((float)h); }
CUDAOPS_API unsigned char CUDAOPS_NAME(__, 2uchar_rz)(CUDAOPS_T h) { return ::cudaops::to_integer<unsigned char>((float)h); }

CUDAOPS_API unsigned short CUDAOPS_NAME(__, _as_ushort)(CUDAOPS_T h) { return CUDAOPS_RAW(h).x; }
CUDAOPS_API short CUDAOPS_NAME(__, _as_short)(CUDAOPS_T h) { return (short)CUDAOPS_RAW(h).x; }
CUDAOPS_API CUDAOPS_T CUDAOPS_NAME(__ushort_as_, )(unsigned short bits) { return CUDAOPS_T(CUDAOPS_RAW{bits}); }
CUDAOPS_API CUDAOPS_T CUDAOPS_NAME(__short_as_, )(short bits) { return CUDAOPS_T(CUDAOPS_RAW{(unsigned short)bits}); }
