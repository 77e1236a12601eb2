// Functions of single precision, each replaced by its double. Shared by both executors: what the
// names stand for is declared by whoever includes this.
#pragma once

#define acosf acos
#define acoshf acosh
#define asinf asin
#define asinhf asinh
#define atan2f atan2
#define atanf atan
#define atanhf atanh
#define cbrtf cbrt
#define ceilf ceil
#define copysignf copysign
#define cosf cos
#define coshf cosh
#define cospif cospi
#define erfcf erfc
#define erff erf
#define exp10f exp10
#define exp2f exp2
#define expf exp
#define expm1f expm1
#define fabsf fabs
#define fdimf fdim
#define floorf floor
#define fmaf fma
#define fmaxf fmax
#define fminf fmin
#define fmodf fmod
#define frexpf frexp
#define hypotf hypot
#define ilogbf ilogb
#define j0f j0
#define j1f j1
#define ldexpf ldexp
#define lgammaf lgamma
#define llrintf llrint
#define llroundf llround
#define log10f log10
#define log1pf log1p
#define log2f log2
#define logbf logb
#define logf log
#define lrintf lrint
#define lroundf lround
#define modff modf
#define nearbyintf nearbyint
#define nextafterf nextafter
#define norm3df norm3d
#define norm4df norm4d
#define normcdff normcdf
#define powf pow
#define rcbrtf rcbrt
#define remainderf remainder
#define rhypotf rhypot
#define rintf rint
#define rnorm3df rnorm3d
#define roundf round
#define rsqrtf rsqrt
#define scalblnf scalbln
#define scalbnf scalbn
#define sincosf sincos
#define sincospif sincospi
#define sinf sin
#define sinhf sinh
#define sinpif sinpi
#define sqrtf sqrt
#define tanf tan
#define tanhf tanh
#define tgammaf tgamma
#define truncf trunc

#undef __cosf
#define __cosf cos
#undef __exp10f
#define __exp10f exp10
#undef __expf
#define __expf exp
#define __fadd_rn __dadd_rn
#define __fdiv_rn __ddiv_rn
#define __fdividef __ddiv_rn
#define __fmaf_rn __fma_rn
#define __fmul_rn __dmul_rn
#define __frcp_rn __drcp_rn
#define __frsqrt_rn rsqrt
#define __fsqrt_rn __dsqrt_rn
#define __fsub_rn __dsub_rn
#define __fadd_rd __dadd_rd
#define __fadd_ru __dadd_ru
#define __fadd_rz __dadd_rz
#define __fdiv_rd __ddiv_rd
#define __fdiv_ru __ddiv_ru
#define __fdiv_rz __ddiv_rz
#define __fmul_rd __dmul_rd
#define __fmul_ru __dmul_ru
#define __fmul_rz __dmul_rz
#define __frcp_rd __drcp_rd
#define __frcp_ru __drcp_ru
#define __frcp_rz __drcp_rz
#define __fsqrt_rd __dsqrt_rd
#define __fsqrt_ru __dsqrt_ru
#define __fsqrt_rz __dsqrt_rz
#define __fsub_rd __dsub_rd
#define __fsub_ru __dsub_ru
#define __fsub_rz __dsub_rz
#define __fmaf_rd __fma_rd
#define __fmaf_ru __fma_ru
#define __fmaf_rz __fma_rz
#undef __log10f
#define __log10f log10
#undef __log2f
#define __log2f log2
#undef __logf
#define __logf log
#undef __powf
#define __powf pow
#undef __sincosf
#define __sincosf sincos
#undef __sinf
#define __sinf sin
#undef __tanf
#define __tanf tan
#undef __tanhf
#define __tanhf tanh
#define fdividef __ddiv_rn
#define __int2float_rn __int2double_rn
#define __uint2float_rn __uint2double_rn
#define __ll2float_rn __ll2double_rn
#define __ull2float_rn __ull2double_rn
#define __float2int_rn __double2int_rn
#define __float2int_rz __double2int_rz
#define __float2int_rd __double2int_rd
#define __float2int_ru __double2int_ru
#define __float2uint_rn __double2uint_rn
#define __float2uint_rz __double2uint_rz
#define __float2uint_rd __double2uint_rd
#define __float2uint_ru __double2uint_ru
#define __float2ll_rn __double2ll_rn
#define __float2ll_rz __double2ll_rz
#define __float2ll_rd __double2ll_rd
#define __float2ll_ru __double2ll_ru
#define __float2ull_rn __double2ull_rn
#define __float2ull_rz __double2ull_rz
#define __float2ull_rd __double2ull_rd
#define __float2ull_ru __double2ull_ru
