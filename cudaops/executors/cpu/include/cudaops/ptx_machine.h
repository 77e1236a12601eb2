// Meaning of the inline PTX that an author's own program may hold beyond `ptx.h`: registers of the
// machine, shared memory, atomics, what waits or asks the warp, and tensor cores. Loads and stores are
// ordinary ones, for the checker too. Source: PTX ISA 9.0, chapters 9 and 10.
#pragma once
#include "macros_off.h"
#include <limits>

#include "async_copies.h"
#include "atomics.h"
#include "narrow_formats.h"
#include "ptx.h"
#include "simd.h"
#include "warp.h"

namespace cudaops_ptx {

using s8 = signed char;
using u8 = unsigned char;
using s16 = short;

// Addresses of shared memory are offsets of 32 bits into what a block's thread has to itself; their lowest
// 16 bits are those of the pointer, for those who swizzle addresses.
CUDAOPS_FN u64 shared_base() { return ((u64)::cudaops_dynamic_shared & ~(u64)0xffff) - (1u << 24); }
CUDAOPS_FN u64 shared_at(u64 address) { return shared_base() + (u32)address; }
CUDAOPS_FN u64 to_shared(u64 pointer) { return (u32)(pointer - shared_base()); }
CUDAOPS_FN bool is_shared(u64 pointer) { return ::cudaops::is_shared((const void*)pointer); }

CUDAOPS_FN u32 thread_of_block() { return (::threadIdx.z * ::blockDim.y + ::threadIdx.y) * ::blockDim.x + ::threadIdx.x; }
CUDAOPS_FN u32 block_of_grid() { return (::blockIdx.z * ::gridDim.y + ::blockIdx.y) * ::gridDim.x + ::blockIdx.x; }
CUDAOPS_FN u32 warps() { return (::blockDim.x * ::blockDim.y * ::blockDim.z + 31) / 32; }

// `exit`: the thread ends here. Of host code, which reads what its author wrote for a GPU too, the program does.
[[noreturn]] void end_thread();

// Carry chains: one flag.
template <class U> CUDAOPS_FN U add_carry(U a, U b, bool in, bool& out) {
  U partial, sum;
  bool first = __builtin_add_overflow(a, b, &partial);
  out = __builtin_add_overflow(partial, (U)in, &sum) | first;
  return sum;
}
template <class U> CUDAOPS_FN U sub_borrow(U a, U b, bool in, bool& out) {
  U partial, difference;
  bool first = __builtin_sub_overflow(a, b, &partial);
  out = __builtin_sub_overflow(partial, (U)in, &difference) | first;
  return difference;
}

CUDAOPS_FN s32 saturated(s64 x) { return x > 0x7fffffffll ? 0x7fffffff : x < -0x80000000ll ? (s32)0x80000000u : (s32)x; }
template <class T> CUDAOPS_FN u32 bfind(T x, bool as_shift) {
  using U = typename std::make_unsigned<T>::type;
  U bits = x < 0 ? ~(U)x : (U)x;
  if (bits == 0) return ~0u;
  u32 top = 63u - (u32)__builtin_clzll((u64)bits);
  return as_shift ? (u32)(8 * sizeof(T)) - 1 - top : top;
}
// On the bytes or halves of two registers, each read as its own type; a result beyond its place is cut off or,
// with `.sat`, as near as the place allows.
template <class T> CUDAOPS_FN s32 lane_of(u32 word, u32 i) { return (s32)(T)(word >> 8 * sizeof(T) * i); }
template <class D, class A, class B, bool SAT, class F> CUDAOPS_FN u32 video(u32 a, u32 b, F operation) {
  u32 all = 0;
  for (u32 i = 0; i < 4 / sizeof(D); ++i) {
    s32 one = operation(lane_of<A>(a, i), lane_of<B>(b, i));
    if (SAT) one = (s32)::cudaops::saturated<D>(one);
    all |= ((u32)one & ((1u << 8 * sizeof(D)) - 1)) << 8 * sizeof(D) * i;
  }
  return all;
}
template <class A, class B, class F> CUDAOPS_FN u32 video_sum(u32 a, u32 b, F operation) {
  u32 sum = 0;
  for (u32 i = 0; i < 4 / sizeof(A); ++i) sum += (u32)operation(lane_of<A>(a, i), lane_of<B>(b, i));
  return sum;
}
#define CUDAOPS_VIDEO(name, expression) \
  struct video_##name { inline s32 operator()(s32 x, s32 y) const { return expression; } };
CUDAOPS_VIDEO(add, x + y) CUDAOPS_VIDEO(sub, x - y) CUDAOPS_VIDEO(avrg, (x + y + (x + y >= 0)) >> 1)
CUDAOPS_VIDEO(min, x < y ? x : y) CUDAOPS_VIDEO(max, x < y ? y : x) CUDAOPS_VIDEO(eq, x == y)
CUDAOPS_VIDEO(ne, x != y) CUDAOPS_VIDEO(lt, x < y) CUDAOPS_VIDEO(le, x <= y) CUDAOPS_VIDEO(gt, x > y)
CUDAOPS_VIDEO(ge, x >= y)
#undef CUDAOPS_VIDEO
template <bool HIGH, int SIGNED_A, int SIGNED_B> CUDAOPS_FN u32 dp2a(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 2; ++i) {
    s32 x = SIGNED_A ? (s32)(s16)(a >> 16 * i) : (s32)(u16)(a >> 16 * i);
    u32 byte = b >> (8 * i + (HIGH ? 16 : 0)) & 255u;
    c += (u32)(x * (SIGNED_B ? (s32)(s8)byte : (s32)byte));
  }
  return c;
}
CUDAOPS_FN u32 mul24(u32 a, u32 b) { return (a & 0xffffffu) * (b & 0xffffffu); }
CUDAOPS_FN u32 mul24(s32 a, s32 b) { return (u32)__mul24(a, b); }
template <class To, class From> CUDAOPS_FN To clamped(From x) {
  constexpr __int128 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  return (__int128)x < low ? (To)low : (__int128)x > high ? (To)high : (To)x;
}

// Numbers of 16 bits, alone and in pairs: each result is rounded once.
using half = ::cudaops::Binary16;
using brain = ::cudaops::Brain16;
template <class F> struct narrow {
  CUDAOPS_FN f32 of(u16 bits) { return F::value(bits); }
  CUDAOPS_FN u16 fma(u16 a, u16 b, u16 c) {
    f32 x = of(a), y = of(b), z = of(c);
    return F::bits(::cudaops::sum_rounded_to_odd(fmaf(x, y, z), x, y, z));
  }
  CUDAOPS_FN u16 add(u16 a, u16 c) {
    f32 x = of(a), z = of(c);
    return F::bits(::cudaops::sum_rounded_to_odd(__fadd_rn(x, z), x, 1.0f, z));
  }
  CUDAOPS_FN u16 neg(u16 a) { return a ^ 0x8000u; }
  CUDAOPS_FN u16 abs(u16 a) { return a & 0x7fffu; }
  CUDAOPS_FN u16 sub(u16 a, u16 c) { return add(a, of(c) != of(c) ? c : neg(c)); }
  CUDAOPS_FN u16 mul(u16 a, u16 b) { return F::bits(__fmul_rn(of(a), of(b))); }
  CUDAOPS_FN u16 min(u16 a, u16 b) { return F::bits(smaller(of(a), of(b))); }
  CUDAOPS_FN u16 max(u16 a, u16 b) { return F::bits(larger(of(a), of(b))); }
  CUDAOPS_FN u16 ex2(u16 a) { return F::bits(exp2f(of(a))); }
  CUDAOPS_FN u16 tanh(u16 a) { return F::bits(tanhf(of(a))); }
};
CUDAOPS_FN u32 paired(u16 low, u16 high) { return (u32)high << 16 | low; }
#define CUDAOPS_PAIRS(name)                                                                  \
  template <class F, class... U> CUDAOPS_FN u32 name##_pair(U... pairs) {                    \
    return paired(narrow<F>::name((u16)pairs...), narrow<F>::name((u16)(pairs >> 16)...));   \
  }
CUDAOPS_PAIRS(fma) CUDAOPS_PAIRS(add) CUDAOPS_PAIRS(sub) CUDAOPS_PAIRS(mul) CUDAOPS_PAIRS(min)
CUDAOPS_PAIRS(max) CUDAOPS_PAIRS(neg) CUDAOPS_PAIRS(abs) CUDAOPS_PAIRS(ex2) CUDAOPS_PAIRS(tanh)
#undef CUDAOPS_PAIRS
CUDAOPS_FN f32 relu(f32 x) { return x > 0.0f || x != x ? x : 0.0f; }
CUDAOPS_FN u32 tf32(f32 x) {  // 10 bits of fraction, ties away from zero
  u32 bits = as<u32>(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

// Memory in another order than an ordinary access: whoever asks in a loop lets others go on.
template <class T, int N> CUDAOPS_FN words<T, N> load_volatile(u64 address) {
  words<T, N> found;
  for (int i = 0; i < N; ++i) found.at[i] = ((const volatile T*)address)[i];
  ::cudaops::spin();
  return found;
}
template <class T, int N> CUDAOPS_FN words<T, N> load_relaxed(u64 address) {
  words<T, N> found;
  for (int i = 0; i < N; ++i) found.at[i] = __atomic_load_n((T*)address + i, __ATOMIC_RELAXED);
  ::cudaops::spin();
  return found;
}
template <class T, int N> CUDAOPS_FN words<T, N> load_acquire(u64 address) {
  words<T, N> found = load_relaxed<T, N>(address);
  __threadfence();
  return found;
}
template <class T, int N> CUDAOPS_FN void store_volatile(u64 address, words<T, N> value) {
  for (int i = 0; i < N; ++i) ((volatile T*)address)[i] = value.at[i];
}
template <class T, int N> CUDAOPS_FN void store_relaxed(u64 address, words<T, N> value) {
  for (int i = 0; i < N; ++i) __atomic_store_n((T*)address + i, value.at[i], __ATOMIC_RELAXED);
}
template <class T, int N> CUDAOPS_FN void store_release(u64 address, words<T, N> value) {
  __threadfence();
  store_relaxed<T, N>(address, value);
}

template <class T> CUDAOPS_FN T fenced(T found) {
  __threadfence();
  return found;
}

CUDAOPS_FN void copy_async(u64 to, u64 from, u32 size, u32 taken) {
  ::cudaops::async_copy(::cudaops::AsyncCopy{(void*)to, (const void*)from, size, taken < size ? taken : size});
}
CUDAOPS_FN void wait_all_copies() {
  ::cudaops::async_commit();
  ::cudaops::wait_for_copies(0);
}

// What lanes ask of each other. Source of `shfl`'s lanes: there, 9.7.9.6.
enum class Shuffle { idx, up, down, bfly };
template <Shuffle way> CUDAOPS_FN u32 shuffle(u32 value, u32 b, u32 c, u32 members, bool& in_range) {
  u32 self = ::cudaops::lane(), segment = c >> 8 & 31u, by = b & 31u;
  u32 first = self & segment, last = first | (c & 31u & ~segment);
  s32 source = way == Shuffle::up ? (s32)self - (s32)by : way == Shuffle::down ? (s32)(self + by)
             : way == Shuffle::bfly ? (s32)(self ^ by) : (s32)(first | (by & ~segment));
  in_range = way == Shuffle::up ? source >= (s32)last : source <= (s32)last;
  return (u32)::cudaops::warp_shuffle(members, value, in_range ? (u32)source : self);
}
CUDAOPS_FN u32 elected(u32 members, bool& is_self) {
  u32 leader = (u32)__ffs((s32)members) - 1;
  __syncwarp(members);
  is_self = ::cudaops::lane() == leader;
  return leader;
}
template <class T> CUDAOPS_FN u32 match_all(u32 members, T value, bool& is_same) {
  int same;
  u32 found = __match_all_sync(members, value, &same);
  is_same = same;
  return found;
}

// Matrices of 8 rows of 16 bytes in shared memory: lane 8 i + r has the address of row r of matrix i.
template <int N, bool TRANSPOSED> CUDAOPS_FN words<u32, N> load_matrix(u64 row) {
  unsigned long long rows[32];
  ::cudaops::warp_gather(~0u, row, rows);
  words<u32, N> found;
  u32 line = ::cudaops::lane() / 4, at = ::cudaops::lane() % 4;
  for (u32 i = 0; i < N; ++i)
    found.at[i] = TRANSPOSED ? paired(((const u16*)rows[8 * i + 2 * at])[line], ((const u16*)rows[8 * i + 2 * at + 1])[line])
                             : ((const u32*)rows[8 * i + line])[at];
  return found;
}
template <int N, bool TRANSPOSED> CUDAOPS_FN void store_matrix(u64 row, words<u32, N> held) {
  unsigned long long rows[32];
  ::cudaops::warp_gather(~0u, row, rows);
  u32 line = ::cudaops::lane() / 4, at = ::cudaops::lane() % 4;
  for (u32 i = 0; i < N; ++i) {
    if (TRANSPOSED) {
      ((u16*)rows[8 * i + 2 * at])[line] = (u16)held.at[i];
      ((u16*)rows[8 * i + 2 * at + 1])[line] = (u16)(held.at[i] >> 16);
    } else {
      ((u32*)rows[8 * i + line])[at] = held.at[i];
    }
  }
}

// Tensor cores: what an element of a register is, and how many it holds. Products are exact, sums of
// single precision, as in mma.h.
template <class F> struct Narrow16 {
  static constexpr u32 count = 2;
  using Sum = f32;
  CUDAOPS_FN f32 at(u32 bits, u32 e) { return F::value((u16)(bits >> 16 * e)); }
};
using f16 = Narrow16<half>;
using bf16 = Narrow16<brain>;
struct tf32_in {
  static constexpr u32 count = 1;
  using Sum = f32;
  CUDAOPS_FN f32 at(u32 bits, u32) { return as<f32>(bits & ~0x1fffu); }  // the unit reads no more bits
};
struct f64_in {
  static constexpr u32 count = 1;
  using Sum = f64;
  CUDAOPS_FN f64 at(u64 bits, u32) { return as<f64>(bits); }
};
template <class Byte> struct Byte8 {
  static constexpr u32 count = 4;
  using Sum = s64;
  CUDAOPS_FN s64 at(u32 bits, u32 e) { return (Byte)(bits >> 8 * e); }
};
using s8_in = Byte8<s8>;
using u8_in = Byte8<u8>;

template <class R, int N> CUDAOPS_FN void gather(const words<R, N>& mine, unsigned long long (&all)[N][32]) {
  for (int i = 0; i < N; ++i) ::cudaops::warp_gather(~0u, mine.at[i], all[i]);
}
// A row of A and a column of B a thread in a group of four; this lane's elements of the sum are in row
// lane / 4 (and 8 below it), columns 2 (lane % 4) and one more. Source: there, 9.7.15.5, the figures.
template <class A, class B, int K, class R, int NA, int NB, class Sum, int NC>
CUDAOPS_FN words<Sum, NC> product(words<R, NA> a, words<R, NB> b, words<Sum, NC> sum) {
  unsigned long long left[NA][32], right[NB][32];
  gather(a, left);
  gather(b, right);
  constexpr u32 group = 4 * A::count, halves = NC / 2;
  for (u32 i = 0; i < NC; ++i) {
    u32 row = ::cudaops::lane() / 4, column = 2 * (::cudaops::lane() % 4) + i % 2;
    typename A::Sum total = (typename A::Sum)sum.at[i];
    for (u32 k = 0; k < K; ++k) {
      u32 part = k / group, of_four = k % group / A::count, e = k % A::count;
      total += A::at((R)left[part * halves + i / 2][4 * row + of_four], e) * B::at((R)right[part][4 * column + of_four], e);
    }
    sum.at[i] = (Sum)total;
  }
  return sum;
}
// One operation of a GPU: a call, whose cost `timemodel.costs` knows by the multiplications in its name.
#define CUDAOPS_TILE(count)                                                                            \
  template <class A, class B, int K, class R, int NA, int NB, class Sum, int NC>                       \
  __attribute__((noinline)) words<Sum, NC> tile_##count(words<R, NA> a, words<R, NB> b, words<Sum, NC> sum) { \
    return product<A, B, K>(a, b, sum);                                                                \
  }
CUDAOPS_TILE(256) CUDAOPS_TILE(512) CUDAOPS_TILE(1024) CUDAOPS_TILE(2048) CUDAOPS_TILE(4096)
#undef CUDAOPS_TILE
CUDAOPS_FN words<f32, 4> sums_of(words<u32, 2> c) {
  return {{half::value((u16)c.at[0]), half::value((u16)(c.at[0] >> 16)), half::value((u16)c.at[1]), half::value((u16)(c.at[1] >> 16))}};
}
CUDAOPS_FN words<u32, 2> halves_of(words<f32, 4> c) {
  return {{paired(half::bits(c.at[0]), half::bits(c.at[1])), paired(half::bits(c.at[2]), half::bits(c.at[3]))}};
}
template <int N> CUDAOPS_FN words<s64, N> wide_of(words<s32, N> c) {
  words<s64, N> found;
  for (int i = 0; i < N; ++i) found.at[i] = c.at[i];
  return found;
}
template <bool SATURATES, int N> CUDAOPS_FN words<s32, N> integers_of(words<s64, N> c) {
  words<s32, N> found;
  for (int i = 0; i < N; ++i) found.at[i] = SATURATES ? saturated(c.at[i]) : (s32)(u32)(u64)c.at[i];
  return found;
}

}  // namespace cudaops_ptx

// Pointers between the address spaces, as CUDA's headers have them for inline PTX.
CUDAOPS_FN size_t __cvta_generic_to_shared(const void* p) { return (size_t)::cudaops_ptx::to_shared((unsigned long long)p); }
CUDAOPS_FN void* __cvta_shared_to_generic(size_t address) { return (void*)::cudaops_ptx::shared_at(address); }
CUDAOPS_FN size_t __cvta_generic_to_global(const void* p) { return (size_t)p; }
CUDAOPS_FN void* __cvta_global_to_generic(size_t address) { return (void*)address; }
CUDAOPS_FN unsigned __isShared(const void* p) { return ::cudaops_ptx::is_shared((unsigned long long)p); }
CUDAOPS_FN unsigned __isGlobal(const void* p) { return p && !::cudaops_ptx::is_shared((unsigned long long)p); }
#include "macros_on.h"
