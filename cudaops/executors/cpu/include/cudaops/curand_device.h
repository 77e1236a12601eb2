// cuRAND's device functions: XORWOW (G. Marsaglia, Xorshift RNGs, 2003), Philox4x32-10 (Salmon et al., Parallel
// random numbers, SC 2011) and MRG32k3a (P. L'Ecuyer, Good parameters for combined multiple recursive random number
// generators, 1999), with cuRAND's seeding, its 2^67 (XORWOW), 2^66 (Philox) and 2^76 (MRG32k3a) numbers a
// subsequence and its Box-Muller transform: the integers are a GPU's to the bit. MTGP32, Sobol and Poisson are not
// here.
#pragma once
#include "cudaops/macros_off.h"
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
struct curandStateMRG32k3a {
  unsigned int s1[3], s2[3];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateMRG32k3a curandStateMRG32k3a_t;
typedef curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

// A table of ours, made by the first thread that needs it: no write of the kernel's.
#define CUDAOPS_TABLE __attribute__((no_sanitize("thread")))

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

  CUDAOPS_TABLE XorwowPowers() {
    for (int bit = 0; bit < 160; ++bit) {
      unsigned int v[5] = {};
      v[bit / 32] = 1u << bit % 32;
      xorwow_step(v);
      for (int word = 0; word < 5; ++word) power[0].image[bit][word] = v[word];
    }
    for (int n = 1; n < 131; ++n)
      for (int bit = 0; bit < 160; ++bit) {
        unsigned int v[5];
        for (int word = 0; word < 5; ++word) v[word] = power[n - 1].image[bit][word];
        power[n - 1].apply(v);
        for (int word = 0; word < 5; ++word) power[n].image[bit][word] = v[word];
      }
  }
  CUDAOPS_TABLE static const XorwowPowers& all() {
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

// Each of MRG32k3a's two recurrences is a matrix over the integers modulo its prime.
struct MrgMatrix {
  unsigned long long at[3][3], prime;

  CUDAOPS_TABLE MrgMatrix times(const MrgMatrix& b) const {
    MrgMatrix c{{}, prime};
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        for (int k = 0; k < 3; ++k) c.at[i][j] = (c.at[i][j] + at[i][k] * b.at[k][j] % prime) % prime;
    return c;
  }
  void apply(unsigned int (&s)[3]) const {
    unsigned long long sum[3] = {};
    for (int i = 0; i < 3; ++i)
      for (int k = 0; k < 3; ++k) sum[i] = (sum[i] + at[i][k] * s[k] % prime) % prime;
    for (int i = 0; i < 3; ++i) s[i] = (unsigned int)sum[i];
  }
};
constexpr unsigned long long mrg_1 = 4294967087u, mrg_2 = 4294944443u;
// Steps by 2^0 to 2^190: 2^63 sequences of 2^127 numbers.
struct MrgPowers {
  MrgMatrix first[191], second[191];

  CUDAOPS_TABLE MrgPowers() {
    first[0] = {{{0, 1, 0}, {0, 0, 1}, {mrg_1 - 810728, 1403580, 0}}, mrg_1};
    second[0] = {{{0, 1, 0}, {0, 0, 1}, {mrg_2 - 1370589, 0, 527612}}, mrg_2};
    for (int n = 1; n < 191; ++n) {
      first[n] = first[n - 1].times(first[n - 1]);
      second[n] = second[n - 1].times(second[n - 1]);
    }
  }
  CUDAOPS_TABLE static const MrgPowers& all() {
    static const MrgPowers made;
    return made;
  }
};
__attribute__((noinline)) inline void mrg_skip(curandStateMRG32k3a* state, unsigned long long count, int exponent) {
  for (int bit = 0; count; ++bit, count >>= 1)
    if (count & 1) {
      MrgPowers::all().first[exponent + bit].apply(state->s1);
      MrgPowers::all().second[exponent + bit].apply(state->s2);
    }
}
// From 1 to the first prime.
CUDAOPS_FN unsigned long long mrg_next(curandStateMRG32k3a* state) {
  unsigned long long a = (1403580ull * state->s1[1] + 810728ull * (mrg_1 - state->s1[0])) % mrg_1;
  unsigned long long b = (527612ull * state->s2[2] + 1370589ull * (mrg_2 - state->s2[0])) % mrg_2;
  for (int word = 0; word < 2; ++word) state->s1[word] = state->s1[word + 1], state->s2[word] = state->s2[word + 1];
  state->s1[2] = (unsigned int)a;
  state->s2[2] = (unsigned int)b;
  return a > b ? a - b : a + mrg_1 - b;
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

CUDAOPS_FN void skipahead(unsigned long long n, curandStateMRG32k3a_t* state) { ::cudaops::mrg_skip(state, n, 0); }
CUDAOPS_FN void skipahead_subsequence(unsigned long long n, curandStateMRG32k3a_t* state) {
  ::cudaops::mrg_skip(state, n & ((1ull << 51) - 1), 76);
}
CUDAOPS_FN void skipahead_sequence(unsigned long long n, curandStateMRG32k3a_t* state) {
  ::cudaops::mrg_skip(state, n, 127);
}
CUDAOPS_FN void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                            curandStateMRG32k3a_t* state) {
  *state = curandStateMRG32k3a{};
  unsigned long long low = (unsigned int)seed ^ 0x55555555u, high = (unsigned int)(seed >> 32) ^ 0xAAAAAAAAu;
  if (!seed) low = high = 1;
  for (int word = 0; word < 3; ++word) {
    state->s1[word] = (unsigned int)((word == 1 ? high : low) * 12345 % ::cudaops::mrg_1);
    state->s2[word] = (unsigned int)((word == 1 ? low : high) * 12345 % ::cudaops::mrg_2);
  }
  skipahead_subsequence(subsequence, state);
  skipahead(offset, state);
}
CUDAOPS_FN unsigned int curand(curandStateMRG32k3a_t* state) {
  return (unsigned int)((double)::cudaops::mrg_next(state) * 1.000000048662);
}

CUDAOPS_FN double curand_uniform_double(curandStateMRG32k3a_t* state) {
  return (double)::cudaops::mrg_next(state) * 2.3283065498378288e-10;
}
CUDAOPS_FN float curand_uniform(curandStateMRG32k3a_t* state) { return (float)curand_uniform_double(state); }
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

CUDAOPS_FN float2 curand_normal2(curandStateMRG32k3a_t* state) {
  float length = sqrtf(-2.0f * logf(curand_uniform(state))), s, c;
  __sincosf(curand_uniform(state) * 6.2831855f, &s, &c);
  return make_float2(s * length, c * length);
}
CUDAOPS_FN double2 curand_normal2_double(curandStateMRG32k3a_t* state) {
  double length = sqrt(-2.0 * log(curand_uniform_double(state))), s, c;
  sincospi(curand_uniform_double(state) * 2.0, &s, &c);
  return make_double2(s * length, c * length);
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
#include "cudaops/macros_on.h"
