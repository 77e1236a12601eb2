// CUDA's function and variable qualifiers as g++ understands them.
#pragma once

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 860
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
// By which a helper's header sees that a part of CUDA's was included before it.
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __VECTOR_TYPES_H__
#define __VECTOR_FUNCTIONS_H__
#define __DEVICE_TYPES_H__
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

// A kernel stands alone in the compiler's dumps: never inlined, never specialised.
#define __global__ __attribute__((noinline, noclone))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local  // static where it stands in a function; authors may write static as well
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __local_maxnreg__(...)
#define __block_size__(...)
#define __cluster_dims__(...)  // intake says it where the kernel is launched
#define __nv_pure__
#define __inline_hint__
#define __forceinline__ inline __attribute__((always_inline))
#define __no_return__ __attribute__((noreturn))
// gcc's own spelling of the attribute too, in its own headers as well: `__attribute__((__noinline__))`
// becomes an attribute that gcc does not know, whose argument it looks up.
enum { __noinline__ };
#define __noinline__ __attribute__((__noinline__))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDART_CB
#define __CUDA_ARCH_HAS_FEATURE__(feature) __CUDA_ARCH_FEAT_##feature
#define __CUDA_HAS_ARCH_FAMILY_SPECIFIC(number) 0
#define __CUDA_HAS_ARCH_SPECIFIC(number) 0

// Intake puts this into the function that uses the array.
#define CUDAOPS_DYNAMIC_SHARED(T, name) T* const name = reinterpret_cast<T*>(cudaops_dynamic_shared)
