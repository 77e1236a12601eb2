// cuRAND's host functions over memory of a processor: every generator of pseudorandom numbers is XORWOW's one
// sequence from its seed and offset, in the order of the elements, so that the numbers are others than a GPU's.
#pragma once
#include "cudaops/macros_off.h"
#include "cudaops/curand_device.h"

typedef enum curandStatus {
  CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_VERSION_MISMATCH = 100, CURAND_STATUS_NOT_INITIALIZED = 101,
  CURAND_STATUS_ALLOCATION_FAILED = 102, CURAND_STATUS_TYPE_ERROR = 103, CURAND_STATUS_OUT_OF_RANGE = 104,
  CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105, CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
  CURAND_STATUS_LAUNCH_FAILURE = 201, CURAND_STATUS_PREEXISTING_FAILURE = 202,
  CURAND_STATUS_INITIALIZATION_FAILED = 203, CURAND_STATUS_ARCH_MISMATCH = 204, CURAND_STATUS_INTERNAL_ERROR = 999
} curandStatus_t;
typedef enum curandRngType {
  CURAND_RNG_TEST = 0, CURAND_RNG_PSEUDO_DEFAULT = 100, CURAND_RNG_PSEUDO_XORWOW = 101,
  CURAND_RNG_PSEUDO_MRG32K3A = 121, CURAND_RNG_PSEUDO_MTGP32 = 141, CURAND_RNG_PSEUDO_MT19937 = 142,
  CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161, CURAND_RNG_QUASI_DEFAULT = 200, CURAND_RNG_QUASI_SOBOL32 = 201,
  CURAND_RNG_QUASI_SCRAMBLED_SOBOL32 = 202, CURAND_RNG_QUASI_SOBOL64 = 203, CURAND_RNG_QUASI_SCRAMBLED_SOBOL64 = 204
} curandRngType_t;
typedef enum curandOrdering {
  CURAND_ORDERING_PSEUDO_BEST = 100, CURAND_ORDERING_PSEUDO_DEFAULT = 101, CURAND_ORDERING_PSEUDO_SEEDED = 102,
  CURAND_ORDERING_PSEUDO_LEGACY = 103, CURAND_ORDERING_PSEUDO_DYNAMIC = 104, CURAND_ORDERING_QUASI_DEFAULT = 201
} curandOrdering_t;

struct curandGenerator_st {
  unsigned long long seed, offset;
  curandStateXORWOW state;
  bool begun;
};
typedef curandGenerator_st* curandGenerator_t;

inline curandStatus_t curandCreateGenerator(curandGenerator_t* made, curandRngType_t type) {
  if (type < CURAND_RNG_PSEUDO_DEFAULT || type >= CURAND_RNG_QUASI_DEFAULT) return CURAND_STATUS_TYPE_ERROR;
  *made = new curandGenerator_st{};
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t* made, curandRngType_t type) {
  return curandCreateGenerator(made, type);
}
inline curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
  delete generator;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
  if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
  generator->seed = seed;
  generator->begun = false;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
  if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
  generator->offset = offset;
  generator->begun = false;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGenerateSeeds(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGetVersion(int* version) { return *version = 10400, CURAND_STATUS_SUCCESS; }

namespace cudaops {
template <class T, class Next> curandStatus_t generate(curandGenerator_t generator, T* out, size_t count, Next next) {
  if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
  if (!generator->begun) curand_init(generator->seed, 0, generator->offset, &generator->state);
  generator->begun = true;
  for (size_t i = 0; i < count; ++i) out[i] = (T)next(&generator->state);
  touch();
  return CURAND_STATUS_SUCCESS;
}
}  // namespace cudaops

inline curandStatus_t curandGenerate(curandGenerator_t generator, unsigned int* out, size_t count) {
  return ::cudaops::generate(generator, out, count, [](curandState* s) { return curand(s); });
}
inline curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* out, size_t count) {
  return ::cudaops::generate(generator, out, count, [](curandState* s) { return curand_uniform(s); });
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* out, size_t count) {
  return ::cudaops::generate(generator, out, count, [](curandState* s) { return curand_uniform_double(s); });
}
// As on a GPU, normal numbers come in pairs.
inline curandStatus_t curandGenerateNormal(curandGenerator_t g, float* out, size_t count, float mean, float stddev) {
  if (count % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  return ::cudaops::generate(g, out, count, [=](curandState* s) { return mean + stddev * curand_normal(s); });
}
inline curandStatus_t curandGenerateNormalDouble(curandGenerator_t g, double* out, size_t count, double mean,
                                                 double stddev) {
  if (count % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  return ::cudaops::generate(g, out, count, [=](curandState* s) { return mean + stddev * curand_normal_double(s); });
}
inline curandStatus_t curandGenerateLogNormal(curandGenerator_t g, float* out, size_t count, float mean, float stddev) {
  if (count % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  return ::cudaops::generate(g, out, count, [=](curandState* s) { return curand_log_normal(s, mean, stddev); });
}
#include "cudaops/macros_on.h"
