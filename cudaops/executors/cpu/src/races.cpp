// Global memory under CUDAOPS_CHECK=full: what several threads do to one place with nothing between that
// puts it in order. Threads of a block are in order as for shared memory. Blocks are where one releases
// and the other acquires: a fence, behind it an atomic or volatile write, and an atomic or volatile read of
// the same address (PTX ISA, memory consistency model: release and acquire patterns, causality order).
// What a thread knows, the others of its block know behind a barrier, and those of its warp behind a warp
// operation; so does what it had fenced.
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>

#include "known.h"
#include "machine.h"

namespace cudaops {

// Who touched a place: a segment (28 bits), the lane's clock, the place in the text (12 bits each), how
// (2), the thread (10). Zero is nobody. Segments are intervals between barriers of one block; they
// ascend, so that marks of an earlier launch are less than `launch_low`.
using Mark = uint64_t;
constexpr unsigned segment_at = 36, clock_at = 24, text_at = 12, how_at = 10;
constexpr uint32_t most_segments = 1u << 28, most_clock = 4095, most_places = 4096;
// Of readers: one thread, several of one warp, of one block, or a `Readers` in the segment's place.
enum : unsigned { one_thread, one_warp, one_block, some_blocks };
constexpr unsigned by_volatile = 1;  // of atomic writes
static inline uint32_t segment_of(Mark m) { return (uint32_t)(m >> segment_at); }
static inline uint32_t clock_of(Mark m) { return (uint32_t)(m >> clock_at) & most_clock; }
static inline unsigned text_of(Mark m) { return (unsigned)(m >> text_at) & (most_places - 1); }
static inline unsigned how_of(Mark m) { return (unsigned)(m >> how_at) & 3; }
static inline unsigned thread_of(Mark m) { return (unsigned)m & 1023; }

// A place of 4 bytes, or of one where part of a word was touched by itself.
struct RaceCell {
  std::atomic<Mark> read, write, atomic;  // `read`: since the last plain write
  std::atomic<uint32_t> taken;
  bool is_split;
};
struct Followed {
  uintptr_t begin;
  size_t size;
  int number;
  RaceCell *words, *bytes;
  unsigned char* paged;  // pages of `words`, then of `bytes`, that hold something
};
struct Segment {
  uint32_t block, interval;
};
struct Readers {
  Mark last;
  uint32_t before, length;
};
// Of an access by the current thread, for one place of it.
struct Touch {
  const Followed& in;
  uintptr_t address;  // of the whole access
  unsigned size;
  bool write, atomic, is_volatile;
  const void* pc;
  Mark mark;
};

// Of a worker, about the block that it runs.
struct Races {
  Known block_known, block_fenced, known[max_threads], fenced[max_threads];
  uint32_t own_since[max_threads] = {};  // the segment in which a thread knows more than its block
  unsigned knowing[max_threads], knowing_count = 0;
  unsigned acquirer = 0;  // who made the access that `Worker::acquires` holds
  uint32_t segment = 0, interval = 0, readers_before = 0;
  struct { const void* pc; unsigned place; } places[256] = {};
  struct { Mark mark; uint32_t before, made; } made[1024] = {};
  // A write that is noted and may not have been made yet; others wait for it that write there too.
  std::atomic<uintptr_t> storing{0};
  std::atomic<unsigned> stored{0};  // bytes of it
  Races* next = nullptr;            // of all workers'
};

static constexpr size_t most_followed_races = 256 << 20;  // bytes of notes
static constexpr uint32_t most_readers = 4 << 20, most_listed = 4096;
static constexpr size_t most_known_parts = 1 << 20;
static std::mutex races_lock;  // of what threads know, of addresses and of places in the text
static std::unordered_map<uintptr_t, Known> released;
static std::atomic<bool> any_released{false}, races_given_up{false};
static std::atomic<size_t> races_bytes{0};
static std::atomic<uint32_t> last_segment{0}, last_readers{0};
static Segment* segments = nullptr;
static Readers* readers = nullptr;
static const void* texts[most_places];
static std::map<const void*, unsigned> text_numbers;
static Mark launch_low = 0;
static uint32_t old_readers = 0;  // up to here of earlier launches
static uint64_t threads_at = 0, threads_each = 0;  // of what is known: where threads stand behind blocks
static Followed program_memory{};
static std::atomic<Races*> first_races{nullptr};
static std::set<std::tuple<const void*, const void*, unsigned, int>> told;
extern char program_begin asm("__data_start"), program_end asm("_end");

static void races_forget() { told.clear(); }  // what was said of the last launch may be said again

static void give_up_races(const char* why) {
  if (!races_given_up.exchange(true)) report("unfollowed\t%s", why);
}

template <class Note>
static Note* reserve_notes(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Note), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Note*>(memory);
}

static size_t pages_of(size_t words) { return words * sizeof(RaceCell) / page + 2; }

static Followed* follow_range(Followed& f, uintptr_t begin, size_t size, int number) {
  size_t words = size / 4 + 2;
  f = {begin, size, number, reserve_notes<RaceCell>(words), reserve_notes<RaceCell>(words * 4),
       reserve_notes<unsigned char>(pages_of(words) + pages_of(words * 4))};
  if (f.words && f.bytes && f.paged) return &f;
  give_up_races("no address space for notes on global memory");
  return nullptr;
}

// What the author's launch leaves alone is not looked at: whoever writes there is found out otherwise.
static bool is_changed(int number) {
  static const char* const changed = option("CUDAOPS_CHANGED");
  if (!changed || number < 0) return true;
  char* end;
  for (const char* text = changed; *text; text = end) {
    long one = strtol(text, &end, 10);
    if (end == text) return false;
    if (one == number) return true;
  }
  return false;
}

void checker_launch(const Call& call) {
  if (depth() != Depth::Full || races_given_up) return;
  if (!segments) {
    segments = reserve_notes<Segment>(most_segments);
    readers = reserve_notes<Readers>(most_readers);
    if (!segments || !readers) return give_up_races("no address space for notes on global memory");
    uintptr_t begin = (uintptr_t)&program_begin / 16 * 16;
    follow_range(program_memory, begin, (uintptr_t)&program_end - begin, 0);
  }
  for (auto& a : allocations)
    if (!a.races && is_changed(a.number)) a.races = follow_range(*new Followed, a.begin, a.size, a.number);
  allocations_changed();
  released.clear();
  any_released = false;
  launch_low = (Mark)(last_segment + 1) << segment_at;
  old_readers = last_readers;
  uint64_t blocks = (uint64_t)call.grid.x * call.grid.y * call.grid.z;
  threads_at = (blocks + 31) / 32 * 32;
  threads_each = ((uint64_t)call.block.x * call.block.y * call.block.z + 31) / 32 * 32;
  Known::prepare(threads_at + threads_each * blocks);
}

static void next_segment(Worker& w) {
  Races& r = *w.races;
  r.segment = last_segment.fetch_add(1, std::memory_order_relaxed) + 1;
  if (r.segment >= most_segments) return give_up_races("too many barriers");
  segments[r.segment] = {w.block_linear, ++r.interval};
}

static void races_block_begin(Worker& w) {
  if (depth() != Depth::Full || races_given_up) return;
  if (!w.races) {
    w.races = new Races;
    w.races->next = first_races;
    while (!first_races.compare_exchange_weak(w.races->next, w.races)) {}
  }
  w.races->interval = 0;
  w.races->readers_before = last_readers;
  next_segment(w);
}


// What a thread knows by itself, beyond its block, until the next barrier.
static void begin_knowing(Races& r, unsigned t) {
  if (r.own_since[t] == r.segment) return;
  r.own_since[t] = r.segment;
  r.knowing[r.knowing_count++] = t;
  r.known[t] = r.block_known, r.fenced[t] = r.block_fenced;
}
static const Known& known_by(const Races& r, unsigned t) {
  return r.own_since[t] == r.segment ? r.known[t] : r.block_known;
}

static void forget(Races& r) {
  for (unsigned i = 0; i < r.knowing_count; ++i) r.known[r.knowing[i]] = r.fenced[r.knowing[i]] = Known();
  r.knowing_count = 0;
}

// The last access has been made by now.
static void settle_acquire(Worker& w) {
  Races& r = *w.races;
  uintptr_t address = std::exchange(w.acquires, 0);
  if (!any_released.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> hold(races_lock);
  auto found = released.find(address);
  if (found == released.end()) return;
  begin_knowing(r, r.acquirer);
  r.known[r.acquirer].join(found->second);
  if (known_parts > most_known_parts) give_up_races("too many releases by threads of different blocks");
}
static inline void settle_races(Worker& w) {
  if (w.is_storing) w.is_storing = false, w.races->storing.store(0, std::memory_order_release);
  if (__builtin_expect(w.acquires != 0, 0)) settle_acquire(w);
}
static inline void begin_storing(Worker& w, const Touch& t) {
  w.is_storing = true, w.races->stored = t.size;
  w.races->storing.store(t.address, std::memory_order_release);
}
// A block on another worker notes its write before it makes it, as this one does. None waits for a place
// below its own, so that no two wait for each other.
static void await_stores(const Worker& w, const Touch& t) {
  for (const Races* r = first_races; r; r = r->next) {
    if (r == w.races) continue;
    for (uintptr_t at; (at = r->storing.load(std::memory_order_acquire)) && at < t.address + t.size && t.address < at + r->stored;)
      sched_yield();
  }
}

static void release_to(Worker& w, uintptr_t address) {
  Races& r = *w.races;
  const Known& fenced = r.own_since[w.current] == r.segment ? r.fenced[w.current] : r.block_fenced;
  if (fenced.empty()) return;
  std::lock_guard<std::mutex> hold(races_lock);
  released[address].join(fenced);
  any_released.store(true, std::memory_order_release);
}

static void race_fence() {
  Worker* w = worker;
  if (!w || !w->in_kernel || !w->races || races_given_up) return;
  settle(*w);
  Races& r = *w->races;
  unsigned t = w->current, l = t & 31;
  Warp& warp = w->warps[t >> 5];
  warp.known[l][l] = ++warp.clock[l];
  std::lock_guard<std::mutex> hold(races_lock);
  begin_knowing(r, t);
  r.known[t].raise(w->block_linear, &r.interval, 1);
  r.known[t].raise(threads_at + w->block_linear * threads_each + (t & ~31u), warp.known[l], 32);
  r.fenced[t] = r.known[t];
}

static void races_barrier(Worker& w) {
  if (!w.races || races_given_up) return;
  Races& r = *w.races;
  if (r.knowing_count) {
    std::lock_guard<std::mutex> hold(races_lock);
    for (unsigned i = 0; i < r.knowing_count; ++i) {
      r.block_known.join(r.known[r.knowing[i]]);
      r.block_fenced.join(r.fenced[r.knowing[i]]);
    }
    forget(r);
  }
  next_segment(w);
}

static void races_warp(Worker& w, unsigned warp_index, unsigned members) {
  if (!w.races || !w.races->knowing_count) return;
  Races& r = *w.races;
  std::lock_guard<std::mutex> hold(races_lock);
  Known known, fenced;
  for (unsigned left = members; left; left &= left - 1) {
    unsigned t = warp_index * 32 + __builtin_ctz(left);
    if (r.own_since[t] == r.segment) known.join(r.known[t]), fenced.join(r.fenced[t]);
  }
  if (known.empty()) return;
  for (unsigned left = members; left; left &= left - 1) {
    unsigned t = warp_index * 32 + __builtin_ctz(left);
    begin_knowing(r, t);
    r.known[t] = known, r.fenced[t] = fenced;
  }
}

// The barrier of a cluster, or of a grid, is one of each of its blocks.
static void races_cluster_barrier(Cluster& c) {
  if (!c.blocks[0]->races || races_given_up) return;
  for (unsigned i = 0; i < c.size; ++i) settle_races(*c.blocks[i]), races_barrier(*c.blocks[i]);
  std::lock_guard<std::mutex> hold(races_lock);
  Known known, fenced;
  for (unsigned i = 0; i < c.size; ++i) {
    Races& r = *c.blocks[i]->races;
    known.join(r.block_known), fenced.join(r.block_fenced);
    known.raise(c.blocks[i]->block_linear, &r.interval, 1);
  }
  for (unsigned i = 0; i < c.size; ++i) c.blocks[i]->races->block_known = known, c.blocks[i]->races->block_fenced = fenced;
}

static void races_block_end(Worker& w) {
  if (!w.races) return;
  Races& r = *w.races;
  w.acquires = 0;
  if (!r.knowing_count && r.block_known.empty() && r.block_fenced.empty()) return;
  std::lock_guard<std::mutex> hold(races_lock);
  forget(r);
  r.block_known = r.block_fenced = Known();
}

static unsigned text_number(Races& r, const void* pc) {
  auto& kept = r.places[(uintptr_t)pc / 2 % 256];
  if (kept.pc == pc) return kept.place;
  std::lock_guard<std::mutex> hold(races_lock);
  auto [found, is_new] = text_numbers.try_emplace(pc, (unsigned)std::min<size_t>(text_numbers.size() + 1, most_places) % most_places);
  if (is_new) texts[found->second] = found->second ? pc : nullptr;
  kept.pc = pc, kept.place = found->second;
  return kept.place;
}

static inline uint32_t race_clock(const Worker& w) {
  return std::min(w.warps[w.current >> 5].clock[w.current & 31], most_clock);
}

// Whether what the mark says comes before what the current thread does now.
static bool comes_before(const Worker& w, Mark then) {
  const Races& r = *w.races;
  Segment of = segments[segment_of(then)];
  unsigned t = thread_of(then), how = how_of(then);
  bool several = how == one_block;
  if (of.block == w.block_linear) {
    if (of.interval < r.interval) return true;
    if (!several && ordered(w, t, clock_of(then))) return true;
  }
  if (!any_released && !w.cluster) return false;
  std::lock_guard<std::mutex> hold(races_lock);
  const Known& known = known_by(r, w.current);
  if (known.at(of.block) > of.interval) return true;
  return !several && known.at(threads_at + of.block * threads_each + t) > clock_of(then);
}

static const char* const race_kinds[] = {
    "several threads write one value to one place of %s",
    "several threads change one place of %s without an atomic",
    "threads read places of %s that others write",
    "threads read places of %s that others change by atomics",
    "threads write places of %s that others change by atomics"};
enum : unsigned { same_value, both_write, read_of_written, read_of_atomic, write_of_atomic };

static const Followed* program_variables(uintptr_t a) {
  return a - program_memory.begin < program_memory.size ? &program_memory : nullptr;
}

static void name_variable(char* text, char* element, size_t size, const Followed& f, uintptr_t a, unsigned bytes) {
  size_t offset = a - f.begin;
  if (&f != &program_memory) {
    snprintf(text, size, "@A%d@", f.number);
    snprintf(element, size, "@E%d:%zu:%u@", f.number, offset, bytes);
    return;
  }
  for (GlobalVariable* v = global_variables; v; v = v->next)
    if (a >= (uintptr_t)v->address && a < (uintptr_t)v->address + v->size) {
      snprintf(text, size, "%s", v->name);
      snprintf(element, size, "%s (byte %zu)", v->name, (size_t)(a - (uintptr_t)v->address));
      return;
    }
  snprintf(text, size, "a variable");
  snprintf(element, size, "a variable");
}

static void tell_race(Worker& w, const Followed& f, uintptr_t a, unsigned size, const char* does, Mark then, const char* did,
                      unsigned kind, const void* pc) {
  const void* other = texts[text_of(then)];
  {
    std::lock_guard<std::mutex> hold(finding_lock);
    if (told.size() >= 256 || !told.insert({pc, other, kind, f.number}).second) return;
  }
  char here[64], there[64], name[256], element[256], reason[320];
  name_thread(here, sizeof here, w, w.current);
  name_thread(there, sizeof there, w, thread_of(then));
  name_variable(name, element, sizeof name, f, a, std::min(size, 8u));
  snprintf(reason, sizeof reason, race_kinds[kind], name);
  const dim3& g = w.call->grid;
  uint32_t b = segments[segment_of(then)].block;
  warn("global_race", pc, other,
       "race on global memory: block (%u,%u,%u) %s %s %s while block (%u,%u,%u) %s %s it at @OTHER@, and nothing puts the two "
       "in order: %s", blockIdx.x, blockIdx.y, blockIdx.z, here, does, element, b % g.x, b / g.x % g.y, b / g.x / g.y, there,
       did, reason);
}

static inline bool is_live(Mark m) { return m >= launch_low; }

static bool is_noted(const Worker& w, Mark readers_mark, uint32_t clock) {
  if (segment_of(readers_mark) != w.races->segment) return false;
  unsigned how = how_of(readers_mark), t = thread_of(readers_mark);
  if (how == one_block) return true;
  if (clock_of(readers_mark) != clock) return false;
  return how == one_thread ? t == w.current : t >> 5 == w.current >> 5;
}

static Mark listed(Worker& w, uint32_t before, Mark last) {
  Races& r = *w.races;
  auto& kept = r.made[(before * 31 + (uint32_t)(last >> segment_at) * 7 + thread_of(last)) % 1024];
  if (!kept.made || kept.mark != last || kept.before != before) {
    uint32_t length = before ? readers[before].length + 1 : 1, number = last_readers.fetch_add(1) + 1;
    if (number >= most_readers) return give_up_races("too many blocks read the same places"), last;
    readers[number] = {last, length > most_listed ? 0 : before, length > most_listed ? 1 : length};
    kept.mark = last, kept.before = before, kept.made = number;
  }
  return (Mark)kept.made << segment_at | (Mark)some_blocks << how_at;
}

// Who has read a place, with one more reader.
static Mark with_reader(Worker& w, Mark old, Mark mine) {
  bool is_list = how_of(old) == some_blocks;
  if (!old || (is_list ? segment_of(old) <= old_readers : !is_live(old))) return mine;
  Mark last = is_list ? readers[segment_of(old)].last : old;
  uint32_t before = is_list ? readers[segment_of(old)].before : 0;
  if (segments[segment_of(last)].block == w.block_linear) {
    if (segment_of(last) == segment_of(mine)) {
      Mark text = mine & ~((Mark)1023 | (Mark)3 << how_at);
      bool one = how_of(last) == one_thread && thread_of(last) == w.current;
      bool in_warp = how_of(last) != one_block && thread_of(last) >> 5 == w.current >> 5;
      mine = one ? mine : text | w.current | (Mark)(in_warp ? one_warp : one_block) << how_at;
    }
    return is_list && before ? listed(w, before, mine) : mine;
  }
  if (is_list) {
    uint32_t at = segment_of(old), clock = clock_of(mine);
    for (unsigned i = 0; i < 16 && at > w.races->readers_before; ++i, at = readers[at].before)
      if (is_noted(w, readers[at].last, clock)) return old;
    return listed(w, segment_of(old), mine);
  }
  return comes_before(w, last) ? mine : listed(w, segment_of(listed(w, 0, last)), mine);
}

static void against_readers(Worker& w, const Touch& t, Mark read, unsigned kind, const char* does) {
  if (how_of(read) != some_blocks) {
    if (is_live(read) && !comes_before(w, read)) tell_race(w, t.in, t.address, t.size, does, read, "reads", kind, t.pc);
    return;
  }
  for (uint32_t at = segment_of(read); at > old_readers; at = readers[at].before)
    if (!comes_before(w, readers[at].last))
      return tell_race(w, t.in, t.address, t.size, does, readers[at].last, "reads", kind, t.pc);
}

// Two plain writes, or two volatile ones; which value stands there afterwards is looked at once it is made.
static void against_write(Worker& w, const Touch& t, Mark write) {
  if (t.size > Overwrite::most || w.cluster) return tell_race(w, t.in, t.address, t.size, "writes", write, "writes", both_write, t.pc);
  if (overwrite.size) return;
  await_stores(w, t);
  overwrite.address = (const char*)t.address, overwrite.size = t.size, overwrite.writer = w.current;
  overwrite.pc = t.pc, overwrite.then = write, overwrite.in = &t.in;
  __real_memcpy(overwrite.before, (const void*)t.address, t.size);
}
static void settle_global_overwrite(Worker& w, const Overwrite& one) {
  bool same = !memcmp(one.address, one.before, one.size);
  tell_race(w, *one.in, (uintptr_t)one.address, one.size, "writes", one.then, "writes", same ? same_value : both_write, one.pc);
}

static void note_place(Worker& w, RaceCell& c, const Touch& t) {
  Mark read = c.read, write = c.write, atomic = c.atomic;
  bool written = is_live(write) && !comes_before(w, write), changed = is_live(atomic) && !comes_before(w, atomic);
  auto tell = [&](const char* does, Mark then, const char* did, unsigned kind) {
    tell_race(w, t.in, t.address, t.size, does, then, did, kind, t.pc);
  };
  const char* does = t.is_volatile ? t.write ? "writes" : "reads" : t.atomic ? "changes by an atomic" : t.write ? "writes" : "reads";
  if (t.atomic && !t.write) {
    if (written) tell("reads", write, "writes", read_of_written);
    return;
  }
  if (!t.write) {
    if (written) tell(does, write, "writes", read_of_written);
    if (changed) tell(does, atomic, "changes", read_of_atomic);
    c.read = with_reader(w, read, t.mark);
    return;
  }
  against_readers(w, t, read, t.atomic ? read_of_atomic : read_of_written, does);
  if (t.atomic) {
    if (written) tell(does, write, "writes", write_of_atomic);
    if (changed && t.is_volatile && how_of(atomic) == by_volatile) against_write(w, t, atomic);
    if (t.is_volatile) begin_storing(w, t);
    c.atomic = t.mark | (Mark)(t.is_volatile ? by_volatile : 0) << how_at;
    return;
  }
  if (written) against_write(w, t, write);
  if (changed) tell(does, atomic, "changes by an atomic", write_of_atomic);
  begin_storing(w, t);
  c.write = t.mark, c.read = 0, c.atomic = 0;
}

static bool has_room(const Followed& f, const RaceCell& c, bool in_bytes) {
  size_t at = (size_t)((const char*)&c - (const char*)(in_bytes ? f.bytes : f.words)) / page;
  unsigned char& paged = f.paged[in_bytes ? pages_of(f.size / 4 + 2) + at : at];
  if (paged) return true;
  if (races_bytes.fetch_add(page) >= most_followed_races) return give_up_races("more global memory than notes fit for"), false;
  paged = 1;
  return true;
}

static void note_word(Worker& w, const Touch& t, size_t word, unsigned low, unsigned high) {
  RaceCell& c = t.in.words[word];
  if (!has_room(t.in, c, false)) return;
  while (c.taken.exchange(1, std::memory_order_acquire)) {}
  bool whole = low == 0 && high == 4;
  if ((!whole || c.is_split) && has_room(t.in, t.in.bytes[word * 4], true) && has_room(t.in, t.in.bytes[word * 4 + 3], true)) {
    RaceCell* each = t.in.bytes + word * 4;
    if (!c.is_split) {
      for (unsigned i = 0; i < 4; ++i) each[i].read = c.read.load(), each[i].write = c.write.load(), each[i].atomic = c.atomic.load();
      c.is_split = true;
      c.read = c.write = c.atomic = 0;
    }
    for (unsigned i = low; i < high; ++i) note_place(w, each[i], t);
  } else {
    note_place(w, c, t);
  }
  c.taken.store(0, std::memory_order_release);
}

static __attribute__((noinline)) void note_words(Worker& w, const Followed& f, uintptr_t a, unsigned size, bool write,
                                                  bool atomic, bool is_volatile, const void* pc) {
  Races& r = *w.races;
  Mark mark = (Mark)r.segment << segment_at | (Mark)race_clock(w) << clock_at | (Mark)text_number(r, pc) << text_at | w.current;
  Touch t{f, a, size, write, atomic || is_volatile, is_volatile, pc, mark};
  uintptr_t begin = a - f.begin, end = begin + size;
  for (size_t word = begin / 4; word * 4 < end && !races_given_up; ++word)
    note_word(w, t, word, word * 4 < begin ? (unsigned)(begin - word * 4) : 0, (unsigned)std::min<size_t>(end - word * 4, 4));
}

// Most accesses were noted already: the same thread's, or of readers whose block has been there.
static inline bool is_repeated(const Worker& w, const RaceCell& c, bool write, uint32_t clock) {
  Mark read = c.read.load(std::memory_order_relaxed), mine = c.write.load(std::memory_order_relaxed);
  if (is_live(c.atomic.load(std::memory_order_relaxed))) return false;
  if (segment_of(mine) == w.races->segment && thread_of(mine) == w.current && clock_of(mine) == clock && !read) return true;
  if (write || !read) return false;
  return is_noted(w, how_of(read) == some_blocks ? readers[segment_of(read)].last : read, clock);
}

static __attribute__((noinline)) void follow_race(Worker& w, const Followed& f, uintptr_t a, unsigned size, bool write,
                                                  bool atomic, bool is_volatile, const void* pc) {
  if (races_given_up.load(std::memory_order_relaxed) || !w.races) return;
  is_volatile = is_volatile && size <= 8;
  if (!atomic && !is_volatile && !((a | size) & 3)) {
    const RaceCell* c = f.words + (a - f.begin) / 4;
    uint32_t clock = race_clock(w);
    unsigned left = size / 4;
    while (left && is_repeated(w, *c, write, clock)) ++c, --left;
    if (!left) return;
  }
  note_words(w, f, a, size, write, atomic, is_volatile, pc);
}

// An atomic or volatile access puts its thread behind others, wherever it is but in shared memory.
static __attribute__((noinline)) void order_by(Worker& w, uintptr_t a, bool write, bool is_read) {
  if (races_given_up.load(std::memory_order_relaxed) || !w.races) return;
  if (write) release_to(w, a);
  if (is_read) w.acquires = a, w.races->acquirer = w.current;
}

}  // namespace cudaops
