// What a program times of itself: clocks are mostly read in pairs, around the launches that count.
// Launches between the first and the second reading, the third and the fourth and so on are timed;
// what stands between two pairs is a warm-up. Host clocks and events pair up by themselves. Shared by
// both recorders; the linker sends the program's readings here (--wrap), and one source defines them.
#pragma once
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <atomic>

namespace cudaops {

enum class Clock { Host, Event };
inline std::atomic<unsigned long> clock_reads[2] = {};
inline void clock_read(Clock clock) { ++clock_reads[(int)clock]; }

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
#define CUDAOPS_CLOCK(result, name, parameters, arguments) \
  extern "C" result __real_##name parameters;              \
  extern "C" result __wrap_##name parameters {             \
    ::cudaops::clock_read(::cudaops::Clock::Host);         \
    return __real_##name arguments;                        \
  }
#ifdef CUDAOPS_CLOCK_WRAPPERS
CUDAOPS_CLOCK(int, clock_gettime, (clockid_t id, timespec* t), (id, t))
CUDAOPS_CLOCK(int, gettimeofday, (timeval* t, void* zone), (t, zone))
CUDAOPS_CLOCK(clock_t, clock, (), ())
#endif
// As libstdc++ names std::chrono::steady_clock::now and system_clock::now: both return nanoseconds.
CUDAOPS_CLOCK(long long, _ZNSt6chrono3_V212steady_clock3nowEv, (), ())
CUDAOPS_CLOCK(long long, _ZNSt6chrono3_V212system_clock3nowEv, (), ())
#undef CUDAOPS_CLOCK
#endif
