// How often each lane goes through each arc of the author's code, in a build that counts
// (`-fprofile-arcs`): a warp goes on until its longest lane is done, a block until its longest warp is.
//
// Threads of a block take turns on one worker. What gcov's counters grow by between two turns is of the
// thread that ran, and so every thread has counts of its own. From these two more sets of counters are
// made, as if one lane of each warp had run, or one of each block, the longest: the one with most steps.
// They are written as gcov writes its own: GCOV_PREFIX.lanes, GCOV_PREFIX.warps, where they say anything
// new. GCOV_PREFIX.blocks has a line a block: its number, steps of its warps' longest lanes together, and
// those of the longest of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "machine.h"

struct gcov_info;
extern "C" {
void __real___gcov_init(gcov_info*) __attribute__((weak));
void __gcov_dump() __attribute__((weak));
void __gcov_reset() __attribute__((weak));
void __wrap___gcov_init(gcov_info* unit);
}

namespace cudaops {

// What g++ hands to gcov's library. Source: libgcc/libgcov.h of GCC 12 and 13; others: nothing is told.
#if __GNUC__ == 12 || __GNUC__ == 13
constexpr bool layout_is_known = true;
#else
constexpr bool layout_is_known = false;
#endif
struct Counters {
  unsigned size;
  long long* counts;
};
struct CountedFunction {
  const void* unit;
  unsigned identity, line_sum, graph_sum;
  Counters arcs;
};
struct CountedUnit {
  unsigned version;
  CountedUnit* next;
  unsigned stamp, sum;
  const char* file;
  void (*merge[8])(long long*, unsigned);  // the first: of arcs
  unsigned functions;
  const CountedFunction* const* function;
};

// Its constructor runs before any object of ours is made.
static CountedUnit* counted_unit = nullptr;

class Lanes {
 public:
  // From now on, unless the unit is none that counts arcs and nothing else.
  void start() {
    arcs_.clear();
    if (!layout_is_known || !__gcov_dump || !__gcov_reset) return;
    if (CountedUnit* u = counted_unit)
      for (unsigned i = 0; i < u->functions && u->merge[0]; ++i)
        if (u->function[i] && u->function[i]->unit == u)
          for (unsigned a = 0; a < u->function[i]->arcs.size; ++a) arcs_.push_back(u->function[i]->arcs.counts + a);
    if (arcs_.size() > most_arcs) arcs_.clear();
    last_.assign(arcs_.size(), 0);
    slot_.assign(arcs_.size(), -1);
    active = !arcs_.empty();
    read_ = 0;
  }

  // What the counters have grown by is this thread's.
  void book(unsigned thread) {
    if ((read_ += arcs_.size()) > most_read) {
      active = false;
      return;
    }
    for (size_t i = 0; i < arcs_.size(); ++i) {
      long long now = *arcs_[i];
      if (__builtin_expect(now == last_[i], 1)) continue;
      if (slot_[i] < 0) new_slot(i);
      own_[(size_t)slot_[i] * max_threads + thread] += now - last_[i];
      last_[i] = now;
    }
  }

  void forget() {
    for (size_t i = 0; i < arcs_.size(); ++i) last_[i] = *arcs_[i];
  }

  void block_ends(unsigned long long block, unsigned threads) {
    std::vector<long long> steps(threads, 0);
    for (size_t s = 0; s < used_.size(); ++s)
      for (unsigned t = 0; t < threads; ++t) steps[t] += own_[s * max_threads + t];
    unsigned longest = 0, warps = (threads + 31) / 32;
    long long together = 0;
    for (unsigned begin = 0; begin < threads; begin += 32) {
      unsigned lane = begin, end = begin + 32 < threads ? begin + 32 : threads;
      for (unsigned t = begin; t < end; ++t) {
        all_ += (double)steps[t] / (end - begin);
        if (steps[t] > steps[lane]) lane = t;
      }
      add(lanes_, lane);
      together += steps[lane];
      if (steps[lane] > steps[longest] || begin == 0) longest = lane;
    }
    add(warps_, longest);
    by_lanes_ += (double)together;
    by_warps_ += (double)steps[longest] * warps;
    char line[64];
    std::snprintf(line, sizeof line, "%llu %lld %lld\n", block, together, steps[longest]);
    blocks_ += line;
    std::fill(own_.begin(), own_.end(), 0);
  }

  // Behind the launch that is counted.
  void write() {
    const char* prefix = getenv("GCOV_PREFIX");
    if (!active || !prefix || by_lanes_ <= 0) return;
    active = false;
    std::string folder = prefix;
    __gcov_dump();
    if (by_lanes_ > tells * all_ || by_warps_ > tells * by_lanes_) {
      write(folder + ".lanes", lanes_);
      write(folder + ".warps", warps_);
    }
    setenv("GCOV_PREFIX", folder.c_str(), 1);
    if (FILE* out = std::fopen((folder + ".blocks").c_str(), "w")) {
      std::fputs(blocks_.c_str(), out);
      std::fclose(out);
    }
  }

  bool active = false;

 private:
  static constexpr size_t most_arcs = 1 << 15;       // a unit of 500 functions has as many
  static constexpr double most_read = 4e9;           // counters looked at: two seconds
  static constexpr double tells = 1.1;               // work of the longest over that of the mean

  void new_slot(size_t arc) {
    slot_[arc] = (int)used_.size();
    used_.push_back(arc);
    own_.resize(used_.size() * max_threads, 0);
    lanes_.resize(used_.size(), 0);
    warps_.resize(used_.size(), 0);
  }

  void add(std::vector<long long>& sums, unsigned thread) {
    for (size_t s = 0; s < used_.size(); ++s) sums[s] += own_[s * max_threads + thread];
  }

  void write(const std::string& folder, const std::vector<long long>& counts) {
    __gcov_reset();
    for (size_t s = 0; s < used_.size(); ++s) *arcs_[used_[s]] = counts[s];
    setenv("GCOV_PREFIX", folder.c_str(), 1);
    __gcov_dump();
  }

  std::vector<long long*> arcs_;
  std::vector<long long> last_, own_, lanes_, warps_;  // the last three by slot; `own_` by thread as well
  std::vector<int> slot_;
  std::vector<size_t> used_;
  double read_ = 0, all_ = 0, by_lanes_ = 0, by_warps_ = 0;
  std::string blocks_;
};

static Lasting<Lanes> lanes_of_unit CUDAOPS_LASTING;
bool lanes_on = false;

void lanes_start() {
  if (!option("CUDAOPS_LANES")) return;
  lanes_of_unit.value.start();
  lanes_on = lanes_of_unit.value.active;
}

void lanes_turn(unsigned thread) {
  lanes_of_unit.value.book(thread);
  lanes_on = lanes_of_unit.value.active;
}

void lanes_block_begins() { lanes_of_unit.value.forget(); }

void lanes_block_ends(Worker& w) {
  lanes_of_unit.value.block_ends(w.block_linear, w.threads);
}

void lanes_write() {
  if (lanes_on) lanes_of_unit.value.write();
  lanes_on = false;
}

}  // namespace cudaops

extern "C" void __wrap___gcov_init(gcov_info* unit) {
  __real___gcov_init(unit);
  cudaops::counted_unit = reinterpret_cast<cudaops::CountedUnit*>(unit);
}
