// For the time model, after keywords.h: a kernel holds its functions, as nvcc makes it hold them; what
// the author keeps apart by __noinline__ and what calls itself stay calls.
#pragma once
#undef __global__
#define __global__ __attribute__((noinline, noclone, flatten))
