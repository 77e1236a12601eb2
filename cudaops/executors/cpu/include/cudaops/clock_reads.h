// What a program times of itself: clocks are mostly read in pairs, around the launches that count.
// Launches between the first and the second reading, the third and the fourth and so on are timed;
// what stands between two pairs is a warm-up. Host clocks and events pair up by themselves. Shared by
// both recorders; the linker sends the program's readings here (--wrap), and one source defines them.
#pragma once
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <atomic>

namespace cudaops {

enum class Clock { Host, Event };
inline std::atomic<unsigned long> clock_reads[2] = {};
inline void clock_read(Clock clock) { ++clock_reads[(int)clock]; }

// How many times as fast as they are the clocks of the program go: what changes with it among what
// the program prints says how fast it was, not what it computed.
inline double clock_rate() {
  static const double rate = [] {
    const char* text = getenv("CUDAOPS_CLOCK_RATE");
    double given = text ? atof(text) : 0;
    return given > 0 ? given : 1;
  }();
  return rate;
}
// One clock, in any unit: as it is when it is read first, and from there on at that rate.
class RatedClock {
 public:
  long long operator()(long long time) {
    if (clock_rate() == 1) return time;
    long long first = 0;
    if (first_.compare_exchange_strong(first, time)) first = time;
    return first + (long long)((double)(time - first) * clock_rate());
  }

 private:
  std::atomic<long long> first_{0};
};

// Of one kernel or configuration: how many of its launches are timed.
class TimedLaunches {
 public:
  void launched() {
    for (int clock = 0; clock < 2; ++clock) {
      unsigned long reads = clock_reads[clock];
      Part& part = parts_[clock];
      if (reads % 2 == 0) continue;
      if (part.opened != reads) part.closed += part.open, part.open = 0, part.opened = reads;
      ++part.open;
    }
  }
  // A clock that was read an odd number of times pairs up with nothing; a part that no reading ends
  // is not timed.
  unsigned long count() const {
    unsigned long most = 0;
    for (int clock = 0; clock < 2; ++clock) {
      unsigned long reads = clock_reads[clock];
      const Part& part = parts_[clock];
      if (reads % 2 == 0) most = std::max(most, part.closed + (part.opened < reads ? part.open : 0));
    }
    return most;
  }

 private:
  struct Part {
    unsigned long closed = 0, open = 0, opened = 0;
  };
  Part parts_[2];
};

}  // namespace cudaops

#if defined CUDAOPS_CLOCK_WRAPPERS || defined CUDAOPS_CHRONO_WRAPPERS
#define CUDAOPS_CLOCK(result, name)                                \
  extern "C" result __real_##name();                               \
  extern "C" result __wrap_##name() {                              \
    static ::cudaops::RatedClock clock;                            \
    ::cudaops::clock_read(::cudaops::Clock::Host);                 \
    return (result)clock((long long)__real_##name());              \
  }
#ifdef CUDAOPS_CLOCK_WRAPPERS
extern "C" int __real_clock_gettime(clockid_t id, timespec* t);
extern "C" int __wrap_clock_gettime(clockid_t id, timespec* t) {
  static ::cudaops::RatedClock clocks[16];
  ::cudaops::clock_read(::cudaops::Clock::Host);
  int error = __real_clock_gettime(id, t);
  if (error) return error;
  long long time = clocks[(unsigned)id % 16](t->tv_sec * 1000000000LL + t->tv_nsec);
  t->tv_sec = time / 1000000000, t->tv_nsec = time % 1000000000;
  return 0;
}
extern "C" int __real_gettimeofday(timeval* t, void* zone);
extern "C" int __wrap_gettimeofday(timeval* t, void* zone) {
  static ::cudaops::RatedClock clock;
  ::cudaops::clock_read(::cudaops::Clock::Host);
  int error = __real_gettimeofday(t, zone);
  if (error || !t) return error;
  long long time = clock(t->tv_sec * 1000000LL + t->tv_usec);
  t->tv_sec = time / 1000000, t->tv_usec = time % 1000000;
  return 0;
}
CUDAOPS_CLOCK(clock_t, clock)
#endif
// As libstdc++ names std::chrono::steady_clock::now and system_clock::now: both return nanoseconds.
CUDAOPS_CLOCK(long long, _ZNSt6chrono3_V212steady_clock3nowEv)
CUDAOPS_CLOCK(long long, _ZNSt6chrono3_V212system_clock3nowEv)
#undef CUDAOPS_CLOCK
#endif
