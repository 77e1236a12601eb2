// CUDA's built-in vector types, their makers, and dim3.
// Alignments: CUDA C++ Programming Guide, table of built-in vector types.
#pragma once

#define CUDAOPS_VECTOR(T, name, align2, align4)                                                   \
  struct name##1 { T x; };                                                                        \
  struct alignas(align2) name##2 { T x, y; };                                                     \
  struct name##3 { T x, y, z; };                                                                  \
  struct alignas(align4) name##4 { T x, y, z, w; };                                               \
  static inline constexpr name##1 make_##name##1(T x) { return name##1{x}; }                      \
  static inline constexpr name##2 make_##name##2(T x, T y) { return name##2{x, y}; }              \
  static inline constexpr name##3 make_##name##3(T x, T y, T z) { return name##3{x, y, z}; }      \
  static inline constexpr name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }

CUDAOPS_VECTOR(signed char, char, 2, 4)
CUDAOPS_VECTOR(unsigned char, uchar, 2, 4)
CUDAOPS_VECTOR(short, short, 4, 8)
CUDAOPS_VECTOR(unsigned short, ushort, 4, 8)
CUDAOPS_VECTOR(int, int, 8, 16)
CUDAOPS_VECTOR(unsigned int, uint, 8, 16)
CUDAOPS_VECTOR(long, long, 16, 16)
CUDAOPS_VECTOR(unsigned long, ulong, 16, 16)
CUDAOPS_VECTOR(long long, longlong, 16, 16)
CUDAOPS_VECTOR(unsigned long long, ulonglong, 16, 16)
CUDAOPS_VECTOR(float, float, 8, 16)
CUDAOPS_VECTOR(double, double, 16, 16)
#undef CUDAOPS_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
      : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
