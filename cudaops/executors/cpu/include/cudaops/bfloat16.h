// cuda_bf16.h: the upper half of a float, and pairs of it.
#pragma once
#include "half.h"

#define __CUDA_BF16_H__
#define __CUDA_BF16_TYPES_EXIST__

#define CUDAOPS_T __nv_bfloat16
#define CUDAOPS_P __nv_bfloat162
#define CUDAOPS_RAW __nv_bfloat16_raw
#define CUDAOPS_RAW_PAIR __nv_bfloat162_raw
#define CUDAOPS_FORMAT ::cudaops::Brain16
#define CUDAOPS_NAME(before, after) before##bfloat16##after
#define CUDAOPS_OTHER __half
#include "narrow_type.h"
#include "narrow_math.h"
#undef CUDAOPS_T
#undef CUDAOPS_P
#undef CUDAOPS_RAW
#undef CUDAOPS_RAW_PAIR
#undef CUDAOPS_FORMAT
#undef CUDAOPS_NAME
#undef CUDAOPS_OTHER

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

CUDAOPS_API __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
CUDAOPS_API __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
CUDAOPS_API __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
CUDAOPS_API __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) { return h.x; }
CUDAOPS_API __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) { return h.y; }
CUDAOPS_API __nv_bfloat162 __low2bfloat162(__nv_bfloat162 h) { return __nv_bfloat162(h.x, h.x); }
CUDAOPS_API __nv_bfloat162 __high2bfloat162(__nv_bfloat162 h) { return __nv_bfloat162(h.y, h.y); }
CUDAOPS_API __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
CUDAOPS_API __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }
CUDAOPS_API float2 __bfloat1622float2(__nv_bfloat162 h) { return float2{h.x, h.y}; }
CUDAOPS_API __nv_bfloat162 __float2bfloat162_rn(float x) { return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(x)); }
CUDAOPS_API __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b)); }
CUDAOPS_API __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __nv_bfloat162(__nv_bfloat16(v.x), __nv_bfloat16(v.y)); }

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7F80U)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7F7FU)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000U)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000U)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3F80U)
CUDAOPS_MACHINE(__nv_bfloat16, __nv_bfloat162, "bf16")
