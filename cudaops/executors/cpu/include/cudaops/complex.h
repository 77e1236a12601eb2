// cuComplex.h: complex numbers as pairs, divided and measured with the scaling of CUDA's own header,
// so that intermediate results neither overflow nor vanish where the result does not.
#pragma once
#include "cudaops/cuda.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

#define CUDAOPS_COMPLEX(C, R, f, make)                                                              \
  static inline C make(R real, R imaginary) { return C{real, imaginary}; }                          \
  static inline R cuCreal##f(C z) { return z.x; }                                                   \
  static inline R cuCimag##f(C z) { return z.y; }                                                   \
  static inline C cuConj##f(C z) { return C{z.x, -z.y}; }                                           \
  static inline C cuCadd##f(C a, C b) { return C{a.x + b.x, a.y + b.y}; }                           \
  static inline C cuCsub##f(C a, C b) { return C{a.x - b.x, a.y - b.y}; }                           \
  static inline C cuCmul##f(C a, C b) { return C{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }   \
  static inline C cuCdiv##f(C a, C b) {                                                             \
    R scale = 1 / (fabs##f(b.x) + fabs##f(b.y));                                                    \
    R ax = a.x * scale, ay = a.y * scale, bx = b.x * scale, by = b.y * scale;                       \
    R inverse = 1 / (bx * bx + by * by);                                                            \
    return C{(ax * bx + ay * by) * inverse, (ay * bx - ax * by) * inverse};                         \
  }                                                                                                 \
  static inline R cuCabs##f(C z) { return hypot##f(z.x, z.y); }                                     \
  static inline C cuCfma##f(C a, C b, C c) {                                                        \
    return C{fma##f(-a.y, b.y, fma##f(a.x, b.x, c.x)), fma##f(a.y, b.x, fma##f(a.x, b.y, c.y))};    \
  }
CUDAOPS_COMPLEX(cuFloatComplex, float, f, make_cuFloatComplex)
CUDAOPS_COMPLEX(cuDoubleComplex, double, , make_cuDoubleComplex)
#undef CUDAOPS_COMPLEX
static inline cuComplex make_cuComplex(float real, float imaginary) { return cuComplex{real, imaginary}; }
static inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return cuDoubleComplex{z.x, z.y}; }
static inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) {
  return cuFloatComplex{(float)z.x, (float)z.y};
}
