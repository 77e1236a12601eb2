// cuda_fp16.h: IEEE binary16 and pairs of it.
#pragma once
#ifndef CUDAOPS_MACHINE
#include "narrow_float.h"
#endif

#define __CUDA_FP16_H__
#define __CUDA_FP16_TYPES_EXIST__

#define CUDAOPS_T __half
#define CUDAOPS_P __half2
#define CUDAOPS_RAW __half_raw
#define CUDAOPS_RAW_PAIR __half2_raw
#define CUDAOPS_FORMAT ::cudaops::Binary16
#define CUDAOPS_NAME(before, after) before##half##after
#include "narrow_type.h"
#include "narrow_math.h"
#undef CUDAOPS_T
#undef CUDAOPS_P
#undef CUDAOPS_RAW
#undef CUDAOPS_RAW_PAIR
#undef CUDAOPS_FORMAT
#undef CUDAOPS_NAME

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;

CUDAOPS_API __half2 make_half2(__half a, __half b) { return __half2(a, b); }
CUDAOPS_API __half2 __half2half2(__half a) { return __half2(a, a); }
CUDAOPS_API __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
CUDAOPS_API __half __low2half(__half2 h) { return h.x; }
CUDAOPS_API __half __high2half(__half2 h) { return h.y; }
CUDAOPS_API __half2 __low2half2(__half2 h) { return __half2(h.x, h.x); }
CUDAOPS_API __half2 __high2half2(__half2 h) { return __half2(h.y, h.y); }
CUDAOPS_API __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
CUDAOPS_API __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
CUDAOPS_API float2 __half22float2(__half2 h) { return float2{h.x, h.y}; }
CUDAOPS_API __half2 __float2half2_rn(float x) { return __half2(__half(x), __half(x)); }
CUDAOPS_API __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
CUDAOPS_API __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7BFFU)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000U)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00U)
CUDAOPS_MACHINE(__half, __half2, "f16")
