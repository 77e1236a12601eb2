// Every access of an instrumented kernel: g++ calls these functions for -fsanitize=thread, and no
// sanitizer library is linked. Finds accesses outside allocations and shared arrays always; races on
// shared memory, divergent barriers and reads of unwritten shared memory under CUDAOPS_CHECK=full.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "machine.h"
#ifdef CUDAOPS_TRACE
#include "cudaops/trace.h"
#include "cudaops/trace_report.h"
#endif

extern "C" void* __real_memcpy(void*, const void*, size_t);  // memcpy is the kernel's (--wrap)

namespace cudaops {

// What happened last to one byte of shared memory. A stamp names an interval between barriers of one
// block; a clock counts the warp operations that its lane had been through.
struct Shadow {
  uint64_t write_stamp, read_stamp;
  const void *write_pc, *read_pc;
  uint32_t write_clock, read_clock, other_clock;
  uint16_t writer, reader, other_reader;
  bool atomic_write, has_other;
};

enum class Depth { None, Memory, Full, Order };
static Depth chosen_depth = Depth::Memory;
static inline Depth depth() { return chosen_depth; }
__attribute__((constructor)) static void choose_depth() {
  const char* text = option("CUDAOPS_CHECK");
  if (!text) return;
  chosen_depth = !strcmp(text, "full") ? Depth::Full : !strcmp(text, "none") ? Depth::None
                 : !strcmp(text, "order") ? Depth::Order : Depth::Memory;
}
static inline bool follows_order() { return depth() == Depth::Full || depth() == Depth::Order; }

// Bytes that g++ itself reads before it uses a shared array of a class with constructors; the build
// read their places from the symbols (cpu_symbols.py). They hold nothing of the author's.
static size_t* shared_guards = nullptr;
static size_t shared_guard_count = 0;
__attribute__((constructor)) static void read_shared_guards() {
  const char* text = option("CUDAOPS_SHARED_GUARDS");
  if (!text) return;
  shared_guards = (size_t*)calloc(strlen(text), sizeof(size_t));
  if (!shared_guards) stop("infrastructure", nullptr, "no memory to check shared accesses");
  for (char* end = nullptr; *text; text = end) {
    shared_guards[shared_guard_count++] = strtoul(text, &end, 10);
    if (end == text) stop("infrastructure", nullptr, "CUDAOPS_SHARED_GUARDS holds no numbers");
  }
}
static bool at_shared_guard(const Worker& w, uintptr_t a) {
  size_t offset = a - (uintptr_t)(w.shared_low - shared_marker);
  return std::binary_search(shared_guards, shared_guards + shared_guard_count, offset);
}

bool trace_on = false;  // the launch that is traced is running

static std::mutex finding_lock;
static std::set<std::pair<const void*, const void*>> found_races, found_same, found_barriers, found_reads, found_arithmetic;

static bool first_time(std::set<std::pair<const void*, const void*>>& seen, const void* a, const void* b) {
  std::lock_guard<std::mutex> hold(finding_lock);
  return seen.size() < 64 && seen.insert({a, b}).second;
}

// Of the launch that runs: accesses to global memory, and how far each allocation was reached.
static constexpr int most_reached = 64;
static std::atomic<uint64_t> accesses{0};
static std::atomic<bool> ran_over{false};  // a signed integer did
static std::atomic<uintptr_t> reached[most_reached];  // 0: not at all
static __thread uint64_t own_accesses;

static void count_accesses();
static void races_forget();

static inline void note_reach(const Allocation& in, uintptr_t end) {
  if (__builtin_expect((++own_accesses & 0xffff) == 0, 0)) count_accesses();
  if ((unsigned)in.number >= most_reached) return;
  std::atomic<uintptr_t>& most = reached[in.number];
  for (uintptr_t known = most.load(std::memory_order_relaxed); known < end;)
    if (most.compare_exchange_weak(known, end, std::memory_order_relaxed)) break;
}

void checker_launch_begin() {
  std::lock_guard<std::mutex> hold(finding_lock);
  for (auto* seen : {&found_races, &found_same, &found_barriers, &found_reads, &found_arithmetic}) seen->clear();
  races_forget();
  accesses = 0;
  ran_over = false;
  for (auto& most : reached) most = 0;
}

void checker_launch_end() {
  report("accesses\t%llu", (unsigned long long)accesses.load());
  if (ran_over) report("overflow");
  for (auto& a : allocations)
    if ((unsigned)a.number < most_reached && reached[a.number])
      report("reached\t%d\t%zu", a.number, (size_t)(reached[a.number] - a.begin));
}

static void name_thread(char* text, size_t size, const Worker& w, unsigned t) {
  const uint3& i = w.index_of[t];
  snprintf(text, size, "thread (%u,%u,%u)", i.x, i.y, i.z);
}

// Whether an access of thread `then`, made at `clock`, comes before what the current thread does now.
static bool ordered(const Worker& w, unsigned then, uint32_t clock) {
  if (then == w.current) return true;
  if (then >> 5 != w.current >> 5) return false;
  return w.warps[then >> 5].known[w.current & 31][then & 31] > clock;
}

static void race(const Worker& w, unsigned then, const void* then_pc, bool then_wrote, bool writes, const void* pc,
                 bool atomic) {
  if (!first_time(found_races, pc, then_pc)) return;
  char here[64], there[64];
  name_thread(here, sizeof here, w, w.current);
  name_thread(there, sizeof there, w, then);
  warn("shared_race", pc, then_pc,
       "%s%s by %s of shared memory that %s %s at @OTHER@ with no barrier between them, block (%u,%u,%u)",
       atomic ? "atomic " : "", writes ? "write" : "read", here, there, then_wrote ? "writes" : "reads", blockIdx.x,
       blockIdx.y, blockIdx.z);
}

// A write where another thread wrote, with no barrier between them, is looked at once it is made: what
// stands there then is either the same or not. An access is noted before it is made, and no other thread
// runs between the two; of global memory, none on another worker writes there.
struct Overwrite {
  static constexpr unsigned most = 1024;  // a structure, or an array that `memcpy` writes
  const char* address;
  unsigned size, writer, other;  // no size: none
  const void *pc, *other_pc;
  const struct Followed* in;     // of global memory; null: shared
  uint64_t then;
  char before[most];
};
static __thread Overwrite overwrite;  // zero at first

// Of global memory, in `races.cpp`.
static void settle_global_overwrite(Worker& w, const Overwrite& one);
static inline void settle_races(Worker& w);
static const Followed* program_variables(uintptr_t a);
static void follow_race(Worker& w, const Followed& f, uintptr_t a, unsigned size, bool write, bool atomic,
                        bool is_volatile, const void* pc);
static void order_by(Worker& w, uintptr_t a, bool write, bool is_read);
static void race_fence();
static void races_block_begin(Worker& w);
static void races_block_end(Worker& w);
static void races_barrier(Worker& w);
static void races_warp(Worker& w, unsigned warp_index, unsigned members);

static void settle_overwrite(Worker& w) {
  Overwrite one;
  __real_memcpy(&one, &overwrite, offsetof(Overwrite, before) + overwrite.size);
  overwrite.size = 0;
  overwrite.in = nullptr;
  unsigned now = std::exchange(w.current, one.writer);
  if (one.in) {
    settle_global_overwrite(w, one);
  } else if (memcmp(one.address, one.before, one.size)) {
    race(w, one.other, one.other_pc, true, true, one.pc, false);
  } else if (first_time(found_same, one.pc, one.other_pc)) {
    char here[64], there[64];
    name_thread(here, sizeof here, w, one.writer);
    name_thread(there, sizeof there, w, one.other);
    warn("shared_race", one.pc, one.other_pc,
         "write by %s of the value that %s writes to the same shared memory at @OTHER@ with no barrier between them, "
         "block (%u,%u,%u)", here, there, blockIdx.x, blockIdx.y, blockIdx.z);
  }
  w.current = now;
}
static inline void settle(Worker& w) {
  if (__builtin_expect(overwrite.size, 0)) settle_overwrite(w);
  settle_races(w);
}

static inline bool in_dynamic(const Worker& w, const char* a) { return (size_t)(a - w.dynamic_low) < dynamic_shared_room; }
static inline bool in_shared(const Worker& w, const char* a) {
  return (size_t)(a - w.shared_low) < (size_t)(w.shared_high - w.shared_low) || in_dynamic(w, a);
}

static Shadow* shadow_of(const Worker& w, const char* a) {
  return in_dynamic(w, a) ? w.dynamic_shadow + (a - w.dynamic_low) : w.shadow + (a - w.shared_low);
}

static void check_races(Worker& w, char* address, unsigned size, bool write, bool atomic, const void* pc) {
  unsigned t = w.current;
  uint32_t clock = w.warps[t >> 5].clock[t & 31];
  Shadow* shadow = shadow_of(w, address);
  for (unsigned i = 0; i < size; ++i) {
    Shadow& s = shadow[i];
    if (s.write_stamp == w.stamp && !(atomic && s.atomic_write) && !ordered(w, s.writer, s.write_clock)) {
      if (!write || atomic || s.atomic_write || size > Overwrite::most || w.cluster) {
        race(w, s.writer, s.write_pc, true, write, pc, atomic);
      } else if (!overwrite.size) {
        overwrite.address = address, overwrite.size = size, overwrite.writer = t, overwrite.other = s.writer;
        overwrite.pc = pc, overwrite.other_pc = s.write_pc;
        __real_memcpy(overwrite.before, address, size);
      }
    }
    if (!write && !atomic && s.write_stamp < w.block_stamp && first_time(found_reads, pc, nullptr))
      warn("uninitialised_read", pc, nullptr,
           "reads shared memory that no thread of block (%u,%u,%u) has written", blockIdx.x, blockIdx.y, blockIdx.z);
    if (write) {
      if (s.read_stamp == w.stamp && !atomic) {
        if (!ordered(w, s.reader, s.read_clock)) race(w, s.reader, s.read_pc, false, true, pc, atomic);
        else if (s.has_other && !ordered(w, s.other_reader, s.other_clock))
          race(w, s.other_reader, s.read_pc, false, true, pc, atomic);
      }
      s.write_stamp = w.stamp, s.write_pc = pc, s.write_clock = clock, s.writer = (uint16_t)t, s.atomic_write = atomic;
    } else {
      bool same_interval = s.read_stamp == w.stamp;
      if (same_interval && s.reader != t) s.other_reader = s.reader, s.other_clock = s.read_clock, s.has_other = true;
      if (!same_interval) s.has_other = false;
      s.read_stamp = w.stamp, s.read_pc = pc, s.read_clock = clock, s.reader = (uint16_t)t;
    }
  }
}

// Notes on so many bytes of memory, all zero; they take room as they are made.
template <class Note>
static Note* make_shadow(size_t bytes) {
  void* memory = mmap(nullptr, (bytes + 1) * sizeof(Note), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop("infrastructure", nullptr, "no memory to check accesses");
  return static_cast<Note*>(memory);
}

// Under CUDAOPS_CHECK=order: who reads what another thread writes, or wrote, with nothing between the
// two that puts them in order. Two writes are none of it: they mostly write the same. Nor are atomics.
// One worker runs all blocks then, so that a stamp below that of the block is another block's.
static void unordered(const Worker& w, uint64_t stamp, unsigned then, uint32_t clock, const void* then_pc, Space space,
                      bool write, const void* pc) {
  bool other_block = stamp < w.block_stamp;
  if (other_block && space == Space::Shared) return;
  if (!other_block && (stamp != w.stamp || ordered(w, then, clock))) return;
  const char* scope = other_block ? "grid" : then >> 5 == w.current >> 5 ? "warp" : "block";
  if (!first_time(found_races, pc, then_pc)) return;
  report("unordered\t%s\t%s\t%s\t%lx\t%lx\t%s", scope, space == Space::Shared ? "shared" : "global",
         write ? "write" : "read", (unsigned long)pc, (unsigned long)then_pc, w.call->kernel);
}

static void follow_order(Worker& w, Shadow* shadow, unsigned size, Space space, bool write, bool atomic, const void* pc) {
  unsigned t = w.current;
  uint32_t clock = w.warps[t >> 5].clock[t & 31];
  for (unsigned i = 0; i < size; ++i) {
    Shadow& s = shadow[i];
    if (!write && !atomic && s.write_stamp && !s.atomic_write)
      unordered(w, s.write_stamp, s.writer, s.write_clock, s.write_pc, space, false, pc);
    if (write && !atomic && s.read_stamp) {
      unordered(w, s.read_stamp, s.reader, s.read_clock, s.read_pc, space, true, pc);
      if (s.has_other) unordered(w, s.read_stamp, s.other_reader, s.other_clock, s.read_pc, space, true, pc);
    }
    if (write) {
      s.write_stamp = w.stamp, s.write_pc = pc, s.write_clock = clock, s.writer = (uint16_t)t, s.atomic_write = atomic;
    } else if (!atomic) {
      s.has_other = s.read_stamp == w.stamp && (s.has_other || s.reader != t);
      if (s.has_other && s.reader != t) s.other_reader = s.reader, s.other_clock = s.read_clock;
      s.read_stamp = w.stamp, s.read_pc = pc, s.read_clock = clock, s.reader = (uint16_t)t;
    }
  }
}

// Global memory that the launch changes (its allocations stand in CUDAOPS_CHANGED), as long as the
// notes on it fit.
struct Changed {
  const Allocation* memory;
  Shadow* shadow;
};
static std::vector<Changed> followed;
static bool is_followed = false;
static constexpr size_t most_followed = 256 << 20;

static void follow_global(Worker& w, const Allocation& in, uintptr_t a, unsigned size, bool write, bool atomic,
                          const void* pc) {
  if (!is_followed) {
    is_followed = true;
    const char* text = option("CUDAOPS_CHANGED");
    for (char* end; text && *text; text = end) {
      long number = strtol(text, &end, 10);
      if (end == text) break;
      for (auto& one : allocations)
        if (one.number == number && one.size <= most_followed) followed.push_back({&one, make_shadow<Shadow>(one.size)});
    }
  }
  for (auto& one : followed)
    if (one.memory->begin == in.begin) follow_order(w, one.shadow + (a - in.begin), size, Space::Global, write, atomic, pc);
}

static bool in_cluster(const Worker& w, uintptr_t a);
static void check_remote(Worker& w, uintptr_t a, unsigned size, bool write, bool atomic, const void* pc);
static void follow_cluster(Worker& w, Worker& of, size_t offset, unsigned size, bool write, bool atomic, const void* pc);

static void check_shared(Worker& w, char* address, unsigned size, bool write, bool atomic, const void* pc) {
  bool dynamic = in_dynamic(w, address);
  char* end = dynamic ? w.dynamic_low + w.call->shared_bytes : w.shared_high;
  if (__builtin_expect(address + size > end, 0)) {
    const char *which = dynamic ? "dynamic" : "static", *verb = write ? "write" : "read";
    stop("out_of_bounds", pc, "%s of %u bytes, %zu bytes past the end of %s shared memory (size %zu bytes)", verb, size,
         (size_t)(address > end ? address - end : 0), which,
         dynamic ? w.call->shared_bytes : (size_t)(w.shared_high - w.shared_low));
  }
  if (depth() == Depth::Full) check_races(w, address, size, write, atomic, pc);
  if (depth() == Depth::Full && w.cluster && !w.cluster->is_grid)
    follow_cluster(w, w, (size_t)(dynamic ? address - w.dynamic_low + (long)w.cluster->statics : address - w.shared_low),
                   size, write, atomic, pc);
  if (depth() == Depth::Order)
    follow_order(w, shadow_of(w, address), size, Space::Shared, write, atomic, pc);
}

[[noreturn]] static void stop_astray(uintptr_t a, unsigned size, bool write, bool atomic, const void* pc) {
  stop("out_of_bounds", pc, "%s%s of %u bytes at address 0x%zx, which belongs to no allocation",
       atomic ? "atomic " : "", write ? "write" : "read", size, (size_t)a);
}

static bool in_global_variable(uintptr_t a) {
  for (GlobalVariable* v = global_variables; v; v = v->next)
    if (a >= (uintptr_t)v->address && a < (uintptr_t)v->address + v->size) return true;
  return false;
}

static const Allocation* allocation_of(Worker& w, uintptr_t a) {
  if (w.allocations_known != allocations_version()) {
    for (auto& r : w.recent) r = Allocation{};
    w.allocations_known = allocations_version();
  }
  for (auto& r : w.recent)
    if (a - r.low < r.high - r.low) return &r;
  const Allocation* found = allocation_around(a);
  if (!found) return nullptr;
  Allocation& kept = w.recent[w.turn++ & 3];
  kept = *found;
  return &kept;
}

// In an allocation that was touched lately and on which no notes are made: most accesses.
static inline bool needs_no_notes(const Worker& w, uintptr_t a, unsigned size) {
  if (w.allocations_known != version || depth() == Depth::Order) return false;
  for (const auto& r : w.recent)
    if (a - r.begin < r.size) {
      if (r.races || size > r.size - (a - r.begin)) return false;
      note_reach(r, a + size);
      return true;
    }
  return false;
}

static inline Space classify_and_check(Worker& w, uintptr_t a, unsigned size, bool write, bool atomic, bool is_volatile,
                                       const void* pc) {
  if (in_shared(w, (const char*)a)) {
    if (depth() != Depth::None) check_shared(w, (char*)a, size, write, atomic, pc);
    return Space::Shared;
  }
  if (in_cluster(w, a)) {
    if (depth() != Depth::None) check_remote(w, a, size, write, atomic, pc);
    return Space::Shared;
  }
  if (const Allocation* found = allocation_of(w, a)) {
    if (__builtin_expect(a < found->begin || a + size > found->begin + found->size, 0) && depth() != Depth::None) {
      if (lets_beyond()) return Space::Global;
      char place[256];
      describe_place(place, sizeof place, a, size);
      stop("out_of_bounds", pc, "%s%s of %u bytes, %s", atomic ? "atomic " : "", write ? "write" : "read", size, place);
    }
    note_reach(*found, a + size);
    if (__builtin_expect(depth() == Depth::Order, 0)) follow_global(w, *found, a, size, write, atomic, pc);
    if (__builtin_expect(found->races != nullptr, 0)) follow_race(w, *found->races, a, size, write, atomic, is_volatile, pc);
    if (__builtin_expect(atomic || is_volatile, 0)) order_by(w, a, write, atomic || !write);
    return Space::Global;
  }
  if (a < 1 << 16)
    stop("out_of_bounds", pc, "%s of %u bytes through a null pointer (address %zu)", write ? "write" : "read", size,
         (size_t)a);
  if (const Followed* variables = program_variables(a)) follow_race(w, *variables, a, size, write, atomic, is_volatile, pc);
  if (atomic || is_volatile) order_by(w, a, write, atomic || !write);
  if (in_global_variable(a)) return Space::Program;
  if (depth() != Depth::None && a - (uintptr_t)w.shared_high < shared_margin)
    check_shared(w, (char*)a, size, write, atomic, pc);
  if (depth() == Depth::None) return Space::Host;
  if (!known_to_host(a)) stop_astray(a, size, write, atomic, pc);
  if (size_t piece = left_piece(a, size, pc))
    stop("out_of_bounds", pc, "%s%s of %u bytes past the end of %zu bytes that malloc or new gave in a kernel",
         atomic ? "atomic " : "", write ? "write" : "read", size, piece);
  return Space::Host;
}

#ifdef CUDAOPS_LOCKSTEP
// CUDAOPS_LOCKSTEP: `shared`, or `all` for global memory too; CUDAOPS_LOCKSTEP_KERNEL: this one alone.
static const char* const lockstep_kernel = option("CUDAOPS_LOCKSTEP_KERNEL");
static const bool lockstep_everywhere = option("CUDAOPS_LOCKSTEP") && !strcmp(option("CUDAOPS_LOCKSTEP"), "all");

static bool lockstep_reaches(Worker& w, uintptr_t a) {
  if (lockstep_kernel && strcmp(lockstep_kernel, w.call->kernel)) return false;
  return in_shared(w, (const char*)a) || (lockstep_everywhere && (allocation_of(w, a) || in_global_variable(a)));
}
#endif

// Threads that have ended are not waited for at a barrier (scheduler.cpp). Those that return before it
// are fine; those that go past it are not, and are told by this: their last access is one that the
// threads which waited make behind the barrier, and not before.
static inline uint64_t place_bit(const void* pc) { return 1ull << (((uintptr_t)pc >> 1) * 0x9e3779b97f4a7c15ull >> 58); }

static void went_past_a_barrier(const Worker& w, const void* pc) {
  for (unsigned i = 0; i < w.past_count; ++i)
    if (w.past[i] == pc && first_time(found_barriers, w.passed_barrier, nullptr))
      warn("divergent_barrier", w.passed_barrier, pc,
           "%u of the %u threads of block (%u,%u,%u) do not come to this barrier and go on to @OTHER@", w.past_threads,
           w.threads, blockIdx.x, blockIdx.y, blockIdx.z);
}

static inline void note_place(Worker& w, const void* pc) {
  if (depth() != Depth::Full) return;
  w.last_place[w.current] = pc;
  w.places[w.current] |= place_bit(pc);
  if (__builtin_expect(w.past_count, 0)) went_past_a_barrier(w, pc);
}

static inline bool waits_at_barrier(const Worker& w, unsigned t) { return w.at_barrier[t >> 6] >> (t & 63) & 1; }

static void look_past_barrier(Worker& w, const void* site) {
  w.past_count = 0, w.past_threads = w.threads - w.live, w.passed_barrier = site;
  if (w.live == w.threads) return;
  uint64_t before = 0;
  for (unsigned t = 0; t < w.threads; ++t)
    if (waits_at_barrier(w, t)) before |= w.places[t];
  for (unsigned t = 0; t < w.threads && w.past_count < Worker::most_past; ++t) {
    const void* place = w.last_place[t];
    if (waits_at_barrier(w, t) || !place || before & place_bit(place)) continue;
    if (std::find(w.past, w.past + w.past_count, place) == w.past + w.past_count) w.past[w.past_count++] = place;
  }
}

#ifdef CUDAOPS_TRACE
// `__constant__` variables; others of the program are in global memory.
static std::vector<std::pair<uintptr_t, size_t>> constants;

static bool in_constant(uintptr_t a) {
  for (auto& [begin, size] : constants)
    if (a - begin < size) return true;
  return false;
}

// CUDAOPS_TRACE_CONSTANT: their names, a space between two.
static void find_constants() {
  const char* text = option("CUDAOPS_TRACE_CONSTANT");
  if (!text) return;
  const std::string names = std::string(" ") + text + " ";
  for (GlobalVariable* v = global_variables; v; v = v->next)
    if (names.find(std::string(" ") + v->name + " ") != std::string::npos)
      constants.emplace_back((uintptr_t)v->address, v->size);
}
#endif

static inline void access(const void* p, unsigned size, bool write, bool atomic, const void* pc, bool is_volatile = false) {
  Worker* w = worker;
  if (!w || !w->in_kernel) return;
  settle(*w);
  auto a = (uintptr_t)p;
  if (a - (uintptr_t)w->stacks < w->stack_stride * max_threads) {
    auto own = (uintptr_t)w->stacks + w->stack_of[w->current] * w->stack_stride;
    if (a - own < w->stack_stride) return;
    stop_astray(a, size, write, atomic, pc);
  }
  if (size == 1 && shared_guard_count && at_shared_guard(*w, a)) return;
#ifdef CUDAOPS_LOCKSTEP
  if (lockstep_reaches(*w, a)) wait_for_warp(pc);
  return;
#endif
#ifndef CUDAOPS_TRACE
  if (!atomic && !is_volatile && needs_no_notes(*w, a, size)) return note_place(*w, pc);
#endif
  Space space = classify_and_check(*w, a, size, write, atomic, is_volatile, pc);
  if (space != Space::Host) note_place(*w, pc);  // the runtime's own memory is the host's
#ifdef CUDAOPS_TRACE
  if (trace_on && space != Space::Host) {
    trace::Space seen = space == Space::Global ? trace::Space::global
                        : space == Space::Shared ? trace::Space::shared
                        : in_constant(a) ? trace::Space::constant : trace::Space::global;
    trace::access(w->current, w->interval, seen, a, size, write, atomic, pc);
  }
#endif
}

void note_atomic(const volatile void* address, unsigned size, const void* pc) {
  access(const_cast<const void*>(address), size, true, true, pc);
}

void checker_block_begin(Worker& w) {
  note_worker();
  if (!w.shadow && follows_order()) {
    w.shadow = make_shadow<Shadow>((size_t)(w.shared_high - w.shared_low));
    w.dynamic_shadow = make_shadow<Shadow>(dynamic_shared_room);
  }
  w.block_stamp = ++w.stamp;
  if (follows_order())
    for (unsigned i = 0; i * 32 < w.threads; ++i) {
      std::memset(w.warps[i].clock, 0, sizeof w.warps[i].clock);
      std::memset(w.warps[i].known, 0, sizeof w.warps[i].known);
    }
  if (depth() == Depth::Full) {
    std::fill_n(w.last_place, w.threads, nullptr);
    std::fill_n(w.places, w.threads, 0);
    w.past_count = 0;
  }
  races_block_begin(w);
#ifdef CUDAOPS_TRACE
  if (trace_on) trace::begin_block(w.block_linear, w.threads);
#endif
}

// Accesses that a launch may make; 0: any number. Unlike seconds it is the same on every machine.
static const uint64_t most_accesses = option("CUDAOPS_MOST_ACCESSES") ? strtoull(option("CUDAOPS_MOST_ACCESSES"), nullptr, 10) : 0;

static void count_accesses() {
  uint64_t all = accesses += std::exchange(own_accesses, 0);
  if (most_accesses && all > most_accesses)
    stop("timeout", nullptr, "made more than %llu accesses of global memory and was stopped", (unsigned long long)most_accesses);
}

void checker_block_end(Worker& w) {
  settle(w);
  count_accesses();
  races_block_end(w);
#ifdef CUDAOPS_TRACE
  if (trace_on) trace::end_block();
#endif
}

void checker_barrier(Worker& w) {
  settle(w);
  ++w.stamp;
  races_barrier(w);
  if (depth() != Depth::Full) return;
  const void* site = nullptr;
  for (unsigned t = 0; t < w.threads; ++t) {
    if (!waits_at_barrier(w, t)) continue;
    if (!site) site = w.site[t];
    if (w.site[t] != site && first_time(found_barriers, site, w.site[t]))
      warn("divergent_barrier", site, w.site[t],
           "threads of block (%u,%u,%u) wait here while others wait at the barrier at @OTHER@", blockIdx.x, blockIdx.y,
           blockIdx.z);
  }
  look_past_barrier(w, site);
}

// The lanes of a warp operation learn of everything that any of them did or had learned before.
void checker_warp(Worker& w, Warp& warp, unsigned members) {
  if (!follows_order()) return;
  settle(w);
  uint32_t merged[32] = {};
  for (unsigned left = members; left; left &= left - 1) {
    unsigned l = __builtin_ctz(left);
    ++warp.clock[l];
    for (unsigned j = 0; j < 32; ++j) merged[j] = std::max(merged[j], warp.known[l][j]);
  }
  for (unsigned left = members; left; left &= left - 1) merged[__builtin_ctz(left)] = warp.clock[__builtin_ctz(left)];
  for (unsigned left = members; left; left &= left - 1)
    std::memcpy(warp.known[__builtin_ctz(left)], merged, sizeof merged);
  races_warp(w, (unsigned)(&warp - w.warps), members);
}

void trace_regions() {
#ifdef CUDAOPS_TRACE
  find_constants();
  for (auto& a : allocations) trace::region(a.number, (const void*)a.begin, a.size);
  if (const char* text = option("CUDAOPS_TRACE_UNCOUNTED"))
    for (char* end; *text; text = end) {
      trace::uncounted(strtoull(text, &end, 10));
      if (end == text) break;
    }
#endif
}

void trace_finish() {
#ifdef CUDAOPS_TRACE
  if (const char* path = option("CUDAOPS_TRACE_REPORT"))
    if (!trace::report(path)) stop("infrastructure", nullptr, "cannot write the trace");
#endif
}

}  // namespace cudaops

#define CUDAOPS_PC __builtin_return_address(0)
#define CUDAOPS_TSAN_SIZE(n)                                                                                     \
  void __tsan_read##n(void* p) { cudaops::access(p, n, false, false, CUDAOPS_PC); }                              \
  void __tsan_write##n(void* p) { cudaops::access(p, n, true, false, CUDAOPS_PC); }                              \
  void __tsan_unaligned_read##n(void* p) { cudaops::access(p, n, false, false, CUDAOPS_PC); }                    \
  void __tsan_unaligned_write##n(void* p) { cudaops::access(p, n, true, false, CUDAOPS_PC); }                    \
  void __tsan_volatile_read##n(void* p) { cudaops::access(p, n, false, false, CUDAOPS_PC, true); }               \
  void __tsan_volatile_write##n(void* p) { cudaops::access(p, n, true, false, CUDAOPS_PC, true); }

extern "C" {
CUDAOPS_TSAN_SIZE(1)
CUDAOPS_TSAN_SIZE(2)
CUDAOPS_TSAN_SIZE(4)
CUDAOPS_TSAN_SIZE(8)
CUDAOPS_TSAN_SIZE(16)
void __tsan_read_range(void* p, unsigned long n) { cudaops::access(p, (unsigned)n, false, false, CUDAOPS_PC); }
void __tsan_write_range(void* p, unsigned long n) { cudaops::access(p, (unsigned)n, true, false, CUDAOPS_PC); }
void __tsan_init() {}
#ifdef CUDAOPS_LOCKSTEP
void __tsan_func_entry(void* pc) {
  cudaops::Worker* w = cudaops::worker;
  if (!w || !w->in_kernel) return;
  cudaops::Place& place = w->place[w->current];
  if (place.depth < cudaops::Place::most_calls) place.calls[place.depth] = pc;
  ++place.depth;
}
void __tsan_func_exit() {
  cudaops::Worker* w = cudaops::worker;
  if (w && w->in_kernel && w->place[w->current].depth) --w->place[w->current].depth;
}
#else
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#endif
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {
  cudaops::race_fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#define CUDAOPS_TSAN_ATOMIC(bits, T)                                                                             \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                                       \
    cudaops::access((const void*)p, sizeof(T), false, true, CUDAOPS_PC);                                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                 \
  }                                                                                                              \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                                    \
    cudaops::access((const void*)p, sizeof(T), true, true, CUDAOPS_PC);                                          \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                    \
  }                                                                                                              \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* c, T v, int, int) {                        \
    cudaops::access((const void*)p, sizeof(T), true, true, CUDAOPS_PC);                                          \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                      \
  }                                                                                                              \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* c, T v, int, int) {                          \
    cudaops::access((const void*)p, sizeof(T), true, true, CUDAOPS_PC);                                          \
    return __atomic_compare_exchange_n(p, c, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
  }                                                                                                              \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T c, T v, int, int) {                              \
    cudaops::access((const void*)p, sizeof(T), true, true, CUDAOPS_PC);                                          \
    __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                            \
    return c;                                                                                                    \
  }
#define CUDAOPS_TSAN_UPDATE(bits, T, name, builtin)                                                              \
  T __tsan_atomic##bits##_##name(volatile T* p, T v, int) {                                                      \
    cudaops::access((const void*)p, sizeof(T), true, true, CUDAOPS_PC);                                          \
    return builtin(p, v, __ATOMIC_SEQ_CST);                                                                      \
  }
#define CUDAOPS_TSAN_ALL(bits, T)                                                                                \
  CUDAOPS_TSAN_ATOMIC(bits, T)                                                                                   \
  CUDAOPS_TSAN_UPDATE(bits, T, exchange, __atomic_exchange_n)                                                    \
  CUDAOPS_TSAN_UPDATE(bits, T, fetch_add, __atomic_fetch_add)                                                    \
  CUDAOPS_TSAN_UPDATE(bits, T, fetch_sub, __atomic_fetch_sub)                                                    \
  CUDAOPS_TSAN_UPDATE(bits, T, fetch_and, __atomic_fetch_and)                                                    \
  CUDAOPS_TSAN_UPDATE(bits, T, fetch_or, __atomic_fetch_or)                                                      \
  CUDAOPS_TSAN_UPDATE(bits, T, fetch_xor, __atomic_fetch_xor)                                                    \
  CUDAOPS_TSAN_UPDATE(bits, T, fetch_nand, __atomic_fetch_nand)
CUDAOPS_TSAN_ALL(8, unsigned char)
CUDAOPS_TSAN_ALL(16, unsigned short)
CUDAOPS_TSAN_ALL(32, unsigned)
CUDAOPS_TSAN_ALL(64, unsigned long)

// Library copies that a kernel calls (--wrap).
void* __real_memset(void*, int, size_t);
void* __real_memmove(void*, const void*, size_t);
void* __wrap_memcpy(void* to, const void* from, size_t n) {
  if (n) cudaops::access(from, (unsigned)n, false, false, CUDAOPS_PC), cudaops::access(to, (unsigned)n, true, false, CUDAOPS_PC);
  return __real_memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, size_t n) {
  if (n) cudaops::access(from, (unsigned)n, false, false, CUDAOPS_PC), cudaops::access(to, (unsigned)n, true, false, CUDAOPS_PC);
  return __real_memmove(to, from, n);
}
void* __wrap_memset(void* to, int value, size_t n) {
  if (n) cudaops::access(to, (unsigned)n, true, false, CUDAOPS_PC);
  return __real_memset(to, value, n);
}
}
