// The accuracy yardstick: everything after this header computes in double where the author wrote
// float. Included after every system header.
#pragma once

#define CUDAOPS_WIDENED 1

#define float double
#define float1 double1
#define float2 double2
#define float3 double3
#define float4 double4
#define make_float1 make_double1
#define make_float2 make_double2
#define make_float3 make_double3
#define make_float4 make_double4

#include "cudaops/widened_names.h"

#define __saturatef ::cudaops::saturate_wide
#define __double2float_rn ::cudaops::keep_wide

namespace cudaops {
static inline double saturate_wide(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }
static inline double keep_wide(double x) { return x; }
}  // namespace cudaops
