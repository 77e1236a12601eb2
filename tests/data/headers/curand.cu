// Numbers of both generators from several places of their sequences.
#ifdef THEIRS
#define QUALIFIERS static inline __host__ __device__
#endif
#include <curand_kernel.h>

#include <cstdio>

template <class State> void draw(const char* name, unsigned long long seed, unsigned long long sequence,
                                 unsigned long long offset) {
  State s;
  curand_init(seed, sequence, offset, &s);
  printf("%s", name);
  for (int i = 0; i < 5; ++i) printf(" %u", curand(&s));
  printf(" %.9g", curand_uniform(&s));
  printf(" %.17g", curand_uniform_double(&s));
  for (int i = 0; i < 3; ++i) printf(" %.4g", curand_normal(&s));
  for (int i = 0; i < 3; ++i) printf(" %.10g", curand_normal_double(&s));
  printf(" %.4g", curand_log_normal(&s, 0.1f, 0.5f));
  skipahead(1000, &s);
  printf(" %u\n", curand(&s));
}

template <class State> void draw_all(const char* name) {
  draw<State>(name, 0, 0, 0);
  draw<State>(name, 11, 1, 6);
  draw<State>(name, 1234567890123456789ull, (1ull << 40) + 5, 123456789);
}

int main() {
  draw_all<curandStateXORWOW_t>("xorwow");
  draw_all<curandStatePhilox4_32_10_t>("philox");
  curandStatePhilox4_32_10_t s;
  curand_init(5, 6, 7, &s);
  uint4 four = curand4(&s);
  four = curand4(&s);
  printf("four %u %u %u %u\n", four.x, four.y, four.z, four.w);
  printf("sizes %zu %zu\n", sizeof(curandState), sizeof(curandStatePhilox4_32_10_t));
}
