// The accuracy yardstick: everything after this header computes in double where the author wrote
// float. Included after every system header.
#pragma once
#include "macros_off.h"

#define CUDAOPS_WIDENED 1

namespace cudaops {
static inline double saturate_wide(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }
template <class T>
static inline T keep_wide(T x) { return x; }
}  // namespace cudaops

#ifdef CUDAOPS_WIDE_DOUBLES
#include "cudaops/wide_doubles.h"
#define float cudaops_wide_float
#define float1 cudaops_wide_float1
#define float2 cudaops_wide_float2
#define float3 cudaops_wide_float3
#define float4 cudaops_wide_float4
#define make_float1 cudaops_make_wide_float1
#define make_float2 cudaops_make_wide_float2
#define make_float3 cudaops_make_wide_float3
#define make_float4 cudaops_make_wide_float4
#define double cudaops_wide_double
#define double1 cudaops_wide_double1
#define double2 cudaops_wide_double2
#define double3 cudaops_wide_double3
#define double4 cudaops_wide_double4
#define make_double1 cudaops_make_wide_double1
#define make_double2 cudaops_make_wide_double2
#define make_double3 cudaops_make_wide_double3
#define make_double4 cudaops_make_wide_double4
#else
#define float double
#define float1 double1
#define float2 double2
#define float3 double3
#define float4 double4
#define make_float1 make_double1
#define make_float2 make_double2
#define make_float3 make_double3
#define make_float4 make_double4
#endif

#include "cudaops/widened_names.h"

#define __saturatef ::cudaops::saturate_wide
#define __double2float_rn ::cudaops::keep_wide
#include "macros_on.h"
