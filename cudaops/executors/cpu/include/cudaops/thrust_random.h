// Thrust's engines are the standard library's; its distributions have no state.
#pragma once
#include "macros_off.h"
#include <random>

#include "cudaops/cuda.h"

namespace thrust {

using std::linear_congruential_engine;
using std::minstd_rand;
using std::minstd_rand0;
using std::ranlux24;
using std::ranlux48;
using default_random_engine = minstd_rand;

template <class T = double> class uniform_real_distribution {
 public:
  explicit uniform_real_distribution(T from = 0, T to = 1) : from_(from), to_(to) {}
  template <class Engine> T operator()(Engine& engine) const {
    double drawn = (double)(engine() - Engine::min()) / ((double)(Engine::max() - Engine::min()) + 1);
    return (T)drawn * (to_ - from_) + from_;
  }

 private:
  T from_, to_;
};
template <class T = int> class uniform_int_distribution {
 public:
  explicit uniform_int_distribution(T from = 0, T to = 9) : from_(from), to_(to) {}
  template <class Engine> T operator()(Engine& engine) const {
    return (T)uniform_real_distribution<double>((double)from_, (double)to_ + 1)(engine);
  }

 private:
  T from_, to_;
};
template <class T = double> using normal_distribution = std::normal_distribution<T>;

namespace random {
using thrust::default_random_engine;
using thrust::normal_distribution;
using thrust::uniform_int_distribution;
using thrust::uniform_real_distribution;
}  // namespace random

}  // namespace thrust
#include "macros_on.h"
