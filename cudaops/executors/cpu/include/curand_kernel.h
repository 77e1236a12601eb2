// cuRAND's device functions: XORWOW (G. Marsaglia, Xorshift RNGs, 2003) and Philox4x32-10 (Salmon et al.,
// Parallel random numbers, SC 2011), with cuRAND's seeding, its 2^67 (XORWOW) and 2^66 (Philox) numbers a
// subsequence and its Box-Muller transform: the integers are a GPU's to the bit. MRG32k3a, MTGP32, Sobol and
// Poisson are not here.
#pragma once
#include <cstring>

#include "cudaops/cuda.h"

struct curandStateXORWOW {
  unsigned int d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned int STATE;
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace cudaops {

// One XORWOW step without its counter is linear over the 160 bits of `v`: where bit b goes.
struct XorwowMatrix {
  unsigned int image[160][5];

  void apply(unsigned int (&v)[5]) const {
    unsigned int sum[5] = {};
    for (int bit = 0; bit < 160; ++bit)
      if (v[bit / 32] >> bit % 32 & 1)
        for (int word = 0; word < 5; ++word) sum[word] ^= image[bit][word];
    std::memcpy(v, sum, sizeof sum);
  }
};
inline void xorwow_step(unsigned int (&v)[5]) {
  unsigned int t = v[0] ^ v[0] >> 2;
  for (int word = 0; word < 4; ++word) v[word] = v[word + 1];
  v[4] = v[4] ^ v[4] << 4 ^ t ^ t << 1;
}
// Steps by the powers of two that occur: up to 2^63 numbers, and 2^63 subsequences of 2^67.
struct XorwowPowers {
  XorwowMatrix power[131];

  XorwowPowers() {
    for (int bit = 0; bit < 160; ++bit) {
      unsigned int v[5] = {};
      v[bit / 32] = 1u << bit % 32;
      xorwow_step(v);
      std::memcpy(power[0].image[bit], v, sizeof v);
    }
    for (int n = 1; n < 131; ++n) {
      power[n] = power[n - 1];
      for (auto& row : power[n].image) power[n - 1].apply(row);
    }
  }
  static const XorwowPowers& all() {
    static const XorwowPowers made;
    return made;
  }
};
__attribute__((noinline)) inline void xorwow_skip(unsigned int (&v)[5], unsigned long long count, int exponent) {
  for (int bit = 0; count; ++bit, count >>= 1)
    if (count & 1) XorwowPowers::all().power[exponent + bit].apply(v);
}

CUDAOPS_FN void philox_advance(uint4& c, unsigned long long low, unsigned long long high) {
  unsigned long long a = (unsigned long long)c.y << 32 | c.x, b = (unsigned long long)c.w << 32 | c.z;
  unsigned long long sum = a + low;
  b += high + (sum < a);
  c = make_uint4((unsigned)sum, (unsigned)(sum >> 32), (unsigned)b, (unsigned)(b >> 32));
}
CUDAOPS_FN uint4 philox_block(uint4 c, uint2 k) {
  for (int round = 0; round < 10; ++round) {
    unsigned long long a = 0xD2511F53ull * c.x, b = 0xCD9E8D57ull * c.z;
    c = make_uint4((unsigned)(b >> 32) ^ c.y ^ k.x, (unsigned)b, (unsigned)(a >> 32) ^ c.w ^ k.y, (unsigned)a);
    k.x += 0x9E3779B9u;
    k.y += 0xBB67AE85u;
  }
  return c;
}

constexpr double by_2_32 = 2.3283064365386963e-10, by_2_53 = 1.1102230246251565e-16;
CUDAOPS_FN float uniform_of(unsigned int x) { return x * 2.3283064e-10f + 2.3283064e-10f / 2.0f; }
CUDAOPS_FN unsigned long long bits53(unsigned int x, unsigned int y) { return x ^ (unsigned long long)y << 21; }
CUDAOPS_FN double uniform_of(unsigned int x, unsigned int y) { return bits53(x, y) * by_2_53 + by_2_53 / 2.0; }
CUDAOPS_FN float2 box_muller(unsigned int x, unsigned int y) {
  const float turn = 2.3283064e-10f * 6.2831855f;
  float length = sqrtf(-2.0f * logf(uniform_of(x))), s, c;
  __sincosf(y * turn + turn / 2, &s, &c);
  return make_float2(s * length, c * length);
}
CUDAOPS_FN double2 box_muller(unsigned int x0, unsigned int x1, unsigned int y0, unsigned int y1) {
  double length = sqrt(-2.0 * log(uniform_of(x0, x1))), s, c;
  sincospi(bits53(y0, y1) * (2.0 * by_2_53) + by_2_53, &s, &c);
  return make_double2(s * length, c * length);
}
constexpr int NORMAL_KEPT = 1, LOG_NORMAL_KEPT = 2;

}  // namespace cudaops

CUDAOPS_FN void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
  ::cudaops::xorwow_skip(state->v, n, 0);
  state->d += 362437u * (unsigned int)n;
}
CUDAOPS_FN void skipahead_sequence(unsigned long long n, curandStateXORWOW_t* state) {
  ::cudaops::xorwow_skip(state->v, n, 67);
}
CUDAOPS_FN void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                            curandStateXORWOW_t* state) {
  unsigned int a = 1099087573u * ((unsigned int)seed ^ 0xaad26b49u);
  unsigned int b = 2591861531u * ((unsigned int)(seed >> 32) ^ 0xf7dcefddu);
  *state = curandStateXORWOW{};
  state->d = 6615241u + b + a;
  state->v[0] = 123456789u + a;
  state->v[1] = 362436069u ^ a;
  state->v[2] = 521288629u + b;
  state->v[3] = 88675123u ^ b;
  state->v[4] = 5783321u + a;
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}
CUDAOPS_FN unsigned int curand(curandStateXORWOW_t* state) {
  ::cudaops::xorwow_step(state->v);
  state->d += 362437u;
  return state->v[4] + state->d;
}

CUDAOPS_FN void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
  unsigned int at = state->STATE + (unsigned int)(n & 3);
  state->STATE = at & 3;
  ::cudaops::philox_advance(state->ctr, n / 4 + (at >> 2), 0);
  state->output = ::cudaops::philox_block(state->ctr, state->key);
}
CUDAOPS_FN void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
  ::cudaops::philox_advance(state->ctr, 0, n);
  state->output = ::cudaops::philox_block(state->ctr, state->key);
}
CUDAOPS_FN void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                            curandStatePhilox4_32_10_t* state) {
  *state = curandStatePhilox4_32_10{};
  state->key = make_uint2((unsigned int)seed, (unsigned int)(seed >> 32));
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}
CUDAOPS_FN unsigned int curand(curandStatePhilox4_32_10_t* state) {
  const uint4& block = state->output;
  unsigned int at = state->STATE;
  unsigned int drawn = at == 0 ? block.x : at == 1 ? block.y : at == 2 ? block.z : block.w;
  skipahead(1, state);
  return drawn;
}
CUDAOPS_FN uint4 curand4(curandStatePhilox4_32_10_t* state) {
  unsigned int x = curand(state), y = curand(state), z = curand(state), w = curand(state);
  return make_uint4(x, y, z, w);
}

CUDAOPS_FN float curand_uniform(curandStateXORWOW_t* state) { return ::cudaops::uniform_of(curand(state)); }
CUDAOPS_FN float curand_uniform(curandStatePhilox4_32_10_t* state) { return ::cudaops::uniform_of(curand(state)); }
CUDAOPS_FN float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  uint4 x = curand4(state);
  return make_float4(::cudaops::uniform_of(x.x), ::cudaops::uniform_of(x.y), ::cudaops::uniform_of(x.z),
                     ::cudaops::uniform_of(x.w));
}
CUDAOPS_FN double curand_uniform_double(curandStateXORWOW_t* state) {
  unsigned int x = curand(state), y = curand(state);
  return ::cudaops::uniform_of(x, y);
}
CUDAOPS_FN double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
  return curand(state) * ::cudaops::by_2_32 + ::cudaops::by_2_32;
}
CUDAOPS_FN double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
  uint4 x = curand4(state);
  return make_double2(::cudaops::uniform_of(x.x, x.y), ::cudaops::uniform_of(x.z, x.w));
}

template <class State> CUDAOPS_FN float2 curand_normal2(State* state) {
  unsigned int x = curand(state), y = curand(state);
  return ::cudaops::box_muller(x, y);
}
template <class State> CUDAOPS_FN double2 curand_normal2_double(State* state) {
  unsigned int x0 = curand(state), x1 = curand(state), y0 = curand(state), y1 = curand(state);
  return ::cudaops::box_muller(x0, x1, y0, y1);
}
CUDAOPS_FN float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
  float2 a = curand_normal2(state), b = curand_normal2(state);
  return make_float4(a.x, a.y, b.x, b.y);
}
// Two are made at a time: the second one is kept for the next call.
template <class State> CUDAOPS_FN float curand_normal(State* state) {
  if (state->boxmuller_flag == ::cudaops::NORMAL_KEPT) return state->boxmuller_flag = 0, state->boxmuller_extra;
  float2 made = curand_normal2(state);
  state->boxmuller_flag = ::cudaops::NORMAL_KEPT;
  state->boxmuller_extra = made.y;
  return made.x;
}
template <class State> CUDAOPS_FN double curand_normal_double(State* state) {
  if (state->boxmuller_flag_double == ::cudaops::NORMAL_KEPT)
    return state->boxmuller_flag_double = 0, state->boxmuller_extra_double;
  double2 made = curand_normal2_double(state);
  state->boxmuller_flag_double = ::cudaops::NORMAL_KEPT;
  state->boxmuller_extra_double = made.y;
  return made.x;
}
template <class State> CUDAOPS_FN float curand_log_normal(State* state, float mean, float stddev) {
  if (state->boxmuller_flag == ::cudaops::LOG_NORMAL_KEPT) return state->boxmuller_flag = 0, state->boxmuller_extra;
  float2 made = curand_normal2(state);
  state->boxmuller_flag = ::cudaops::LOG_NORMAL_KEPT;
  state->boxmuller_extra = expf(mean + stddev * made.y);
  return expf(mean + stddev * made.x);
}
template <class State> CUDAOPS_FN double curand_log_normal_double(State* state, double mean, double stddev) {
  if (state->boxmuller_flag_double == ::cudaops::LOG_NORMAL_KEPT)
    return state->boxmuller_flag_double = 0, state->boxmuller_extra_double;
  double2 made = curand_normal2_double(state);
  state->boxmuller_flag_double = ::cudaops::LOG_NORMAL_KEPT;
  state->boxmuller_extra_double = exp(mean + stddev * made.y);
  return exp(mean + stddev * made.x);
}
