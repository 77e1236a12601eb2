// One block on one worker: every thread on a fiber. A thread that ends without having waited leaves
// its stack to the next one, so a kernel that never synchronises costs a plain loop.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>

#include "machine.h"

__thread uint3 threadIdx CUDAOPS_TLS;
__thread uint3 blockIdx CUDAOPS_TLS;
__thread dim3 blockDim CUDAOPS_TLS;
__thread dim3 gridDim CUDAOPS_TLS;
__thread bool cudaops_carry CUDAOPS_TLS;
extern "C" {
__thread char cudaops_dynamic_shared[cudaops::dynamic_shared_room] __attribute__((aligned(1024)));
}

namespace cudaops {

__thread Worker* worker = nullptr;

static void deadlock(Worker& w);
static Worker* next_block(Worker& w);              // of those that run with it, in which a thread can go on
static void* enter_block(Worker& from, Worker& to);
static void cluster_thread_ended(Worker& w, unsigned t);

static inline void make_ready(Worker& w, unsigned t) { w.ready[t >> 6] |= 1ull << (t & 63); }
static inline void make_waiting(Worker& w, unsigned t) { w.ready[t >> 6] &= ~(1ull << (t & 63)); }
static inline unsigned ready_lanes(Worker& w, unsigned warp) {
  return (unsigned)(w.ready[warp >> 1] >> (32 * (warp & 1)));
}

bool reversed_threads = false, reversed_blocks = false;
__attribute__((constructor)) static void choose_order() {
  const char* text = option("CUDAOPS_ORDER");
  reversed_blocks = text && !strcmp(text, "all");
  reversed_threads = text && (reversed_blocks || !strcmp(text, "threads"));
}

static int ready_before(const Worker& w, unsigned t) {
  unsigned word = t >> 6;
  uint64_t bits = w.ready[word] & ((1ull << (t & 63)) - 1);
  for (unsigned i = 0; i <= w.words; ++i) {
    if (bits) return (int)(word * 64 + 63 - __builtin_clzll(bits));
    word = word ? word - 1 : w.words - 1;
    bits = w.ready[word];
  }
  return -1;
}

// The next thread after `t` that can go on, in cyclic order; -1 where there is none.
static inline int next_ready(const Worker& w, unsigned t) {
  if (__builtin_expect(reversed_threads, 0)) return ready_before(w, t);
  unsigned from = t + 1, word = from >> 6;
  if (word < w.words) {
    uint64_t bits = w.ready[word] & (~0ull << (from & 63));
    if (bits) return (int)(word * 64 + __builtin_ctzll(bits));
  }
  for (unsigned i = word + 1; i < w.words; ++i)
    if (w.ready[i]) return (int)(i * 64 + __builtin_ctzll(w.ready[i]));
  for (unsigned i = 0; i < w.words && i <= word; ++i)
    if (w.ready[i]) return (int)(i * 64 + __builtin_ctzll(w.ready[i]));
  return -1;
}

static unsigned take_stack(Worker& w) {
  if (!w.idle_stacks.empty()) {
    unsigned stack = w.idle_stacks.back();
    w.idle_stacks.pop_back();
    return stack;
  }
  unsigned stack = w.stacks_ready++;
  char* low = w.has_guards ? w.stacks + stack * w.stack_stride + page : w.stacks;
  size_t size = w.has_guards ? fiber_bytes : stack ? 0 : w.stack_stride * max_threads;
  if (size && mprotect(low, size, PROT_READ | PROT_WRITE) != 0)
    stop("infrastructure", nullptr, "no memory for the stacks of a block's threads");
  return stack;
}

// Tops are staggered, else all stacks would compete for the same cache sets.
static void* fresh_context(Worker& w, unsigned stack) {
  char* top = w.stacks + (stack + 1) * w.stack_stride - (stack * 576u) % 4032u / 64u * 64u;
  return prepare_stack(top);
}

static inline void become(Worker& w, unsigned t) {
  if (__builtin_expect(lanes_on, 0)) lanes_turn(w.current);
  w.current = t;
  threadIdx = w.index_of[t];
}

// Where thread `t` goes on: its saved context, or a fresh stack.
static void* target(Worker& w, unsigned t) {
  become(w, t);
  if (w.context[t]) return w.context[t];
  w.stack_of[t] = take_stack(w);
  return fresh_context(w, w.stack_of[t]);
}

#ifdef CUDAOPS_LOCKSTEP
// Below 0 where thread `a` stands before thread `b` in the text: lanes that are behind go on first, so
// that those of both ways of a branch, and of loops that they leave one by one, meet again behind it.
static int compare_places(const Worker& w, unsigned a, unsigned b) {
  const Place &p = w.place[a], &q = w.place[b];
  for (unsigned i = 0; i <= p.depth && i <= q.depth && i <= Place::most_calls; ++i)
    if (p.calls[i] != q.calls[i]) return (uintptr_t)p.calls[i] < (uintptr_t)q.calls[i] ? -1 : 1;
  return (int)p.depth - (int)q.depth;
}
#endif

static void complete(Worker& w, unsigned warp_index, int group_index, unsigned members) {
  Warp& warp = w.warps[warp_index];
  Group group = warp.group[group_index];
  warp.group[group_index] = warp.group[--warp.groups];
#ifdef CUDAOPS_INSTRUMENTED
  if (group.kind != Collective::Active) checker_warp(w, warp, members);
#endif
  unsigned votes = 0;
  for (unsigned left = members; left; left &= left - 1) {
    unsigned l = __builtin_ctz(left);
    votes |= (warp.value[l] != 0) << l;
    if (group.kind == Collective::Gather) warp.gathered[l] = warp.value[l];
  }
  for (unsigned left = members; left; left &= left - 1) {
    unsigned l = __builtin_ctz(left);
    warp.members[l] = members;
    if (group.kind == Collective::Shuffle) {
      unsigned from = warp.source[l] & 31;
      warp.result[l] = warp.value[members >> from & 1 ? from : l];
    } else if (group.kind == Collective::Match) {
      unsigned equal = 0;
      for (unsigned i = 0; i < 32; ++i)
        if ((members >> i & 1) && warp.value[i] == warp.value[l]) equal |= 1u << i;
      warp.result[l] = equal;
    } else {
      warp.result[l] = votes;
    }
  }
  w.ready[warp_index >> 1] |= (uint64_t)members << (32 * (warp_index & 1));
}

// Groups whose every named lane that still lives has arrived.
static void complete_groups(Worker& w, unsigned warp_index) {
  Warp& warp = w.warps[warp_index];
  for (int i = 0; i < warp.groups;) {
    Group& group = warp.group[i];
    unsigned needed = group.mask & warp.live;
    if (!group.implicit && (group.waiting & needed) == needed) {
      complete(w, warp_index, i, group.waiting);
      i = 0;
    } else {
      ++i;
    }
  }
}

// Nobody of the warp can move: operations without a mask go on with the lanes that are there.
static void settle_warp(Worker& w, unsigned warp_index) {
  Warp& warp = w.warps[warp_index];
  if (!warp.groups || ready_lanes(w, warp_index)) return;
#ifdef CUDAOPS_LOCKSTEP
  int chosen = -1;
  for (int i = 0; i < warp.groups; ++i) {
    if (!warp.group[i].implicit) continue;
    if (chosen >= 0) {
      unsigned ours = warp.group[i].waiting, best = warp.group[chosen].waiting;
      bool waits = (ours & ~warp.spinning) == 0, best_waits = (best & ~warp.spinning) == 0;
      unsigned here = warp_index * 32 + __builtin_ctz(ours), there = warp_index * 32 + __builtin_ctz(best);
      if (waits != best_waits ? waits : compare_places(w, here, there) > 0) continue;
    }
    chosen = i;
  }
  if (chosen < 0) return;
  warp.spinning &= ~warp.group[chosen].waiting;
  complete(w, warp_index, chosen, warp.group[chosen].waiting);
  return;
#endif
  for (int i = 0; i < warp.groups; ++i)
    if (warp.group[i].implicit) {
      complete(w, warp_index, i, warp.group[i].waiting);
      return;
    }
}

static void release_barrier(Worker& w) {
  w.count_then = w.count_now;
  w.any_then = w.any_now;
  w.all_then = w.all_now;
  w.count_now = 0;
  w.any_now = 0;
  w.all_now = 1;
  for (unsigned i = 0; i < w.words; ++i) {
    w.ready[i] |= w.at_barrier[i];
    w.at_barrier[i] = 0;
  }
  w.arrived = 0;
  w.spins = 0;
  ++w.interval;
}

// All threads that have not ended are there, which is what a GPU waits for. Source: CUDA C++ Programming
// Guide, compute capability 7.x, independent thread scheduling.
static void barrier_complete(Worker& w) {
#ifdef CUDAOPS_INSTRUMENTED
  checker_barrier(w);
#endif
  release_barrier(w);
}

// Gives the processor to another thread of the block until this one is ready again.
static void suspend(Worker& w) {
  unsigned self = w.current;
  settle_warp(w, self >> 5);
  int next = next_ready(w, self);
  Worker* other = next < 0 ? next_block(w) : nullptr;
  if (next < 0 && !other) deadlock(w);
  if (!other && (unsigned)next == self) return;
  void* to = other ? enter_block(w, *other) : target(w, (unsigned)next);
  cudaops_switch(&w.context[self], to);
}

static void thread_ended(Worker& w) {
  unsigned t = w.current;
  make_waiting(w, t);
  --w.live;
  Warp& warp = w.warps[t >> 5];
  warp.live &= ~(1u << (t & 31));
  if (w.arrived && w.arrived == w.live) barrier_complete(w);
  if (warp.groups) {
    complete_groups(w, t >> 5);
    settle_warp(w, t >> 5);
  }
  if (w.cluster) cluster_thread_ended(w, t);
}

}  // namespace cudaops

namespace cudaops {
struct ThreadEnds {};

// A thread that `exit` ends leaves by an exception, from wherever it is.
static void run_thread(const Call& call) {
  try {
    call.invoke(call.closure);
  } catch (const ThreadEnds&) {
  }
}
}  // namespace cudaops

namespace cudaops_ptx {
[[noreturn]] void end_thread();
void end_thread() {
  if (!cudaops::worker || !cudaops::worker->in_kernel) std::exit(EXIT_FAILURE);
  throw cudaops::ThreadEnds();
}
}  // namespace cudaops_ptx

// The bottom of every fiber: threads one after another as long as none of them has to wait.
extern "C" void cudaops_thread_main() {
  using namespace cudaops;
  Worker& w = *worker;
  for (;;) {
    unsigned self = w.current;
    run_thread(*w.call);
    thread_ended(w);
    int next = next_ready(w, self);
    void* nowhere;
    if (next < 0) {
      Worker* other = next_block(w);
      if (!other && (w.cluster ? w.cluster->live : w.live)) deadlock(w);
      w.idle_stacks.push_back(w.stack_of[self]);
      Worker& first = w.cluster ? *w.cluster->blocks[0] : w;
      cudaops_switch(&nowhere, other ? enter_block(w, *other) : first.home);
    }
    if (!w.context[next]) {
      w.stack_of[next] = w.stack_of[self];
      become(w, (unsigned)next);
      continue;
    }
    w.idle_stacks.push_back(w.stack_of[self]);
    become(w, (unsigned)next);
    cudaops_switch(&nowhere, w.context[next]);
  }
}

namespace cudaops {

static void index_threads(Worker& w, dim3 block) {
  if (w.index_x == block.x && w.index_y == block.y && w.index_z == block.z) return;
  w.index_x = block.x, w.index_y = block.y, w.index_z = block.z;
  unsigned t = 0;
  for (unsigned z = 0; z < block.z; ++z)
    for (unsigned y = 0; y < block.y; ++y)
      for (unsigned x = 0; x < block.x; ++x) w.index_of[t++] = uint3{x, y, z};
}

// Shared memory of a new block holds nothing that a right kernel could use.
static void poison_shared(Worker& w) {
  std::memset(w.shared_low, 0xff, (size_t)(w.shared_high - w.shared_low));
  std::memset(cudaops_dynamic_shared, 0xff, w.call->shared_bytes);
}

// A thread's copies, in the order in which it asked for them, and the batches that it has committed.
struct AskedCopies {
  std::deque<std::pair<AsyncCopy, unsigned>> waiting;
  unsigned committed = 0;
};

static void prepare_block(Worker& w, const Call& call, unsigned long long linear) {
  w.call = &call;
  w.block_linear = (unsigned)linear;
  w.block_index = uint3{(unsigned)(linear % call.grid.x), (unsigned)(linear / call.grid.x % call.grid.y),
                        (unsigned)(linear / call.grid.x / call.grid.y)};
  blockDim = call.block;
  gridDim = call.grid;
  blockIdx = w.block_index;
  w.threads = w.live = call.block.x * call.block.y * call.block.z;
  w.words = (w.threads + 63) / 64;
  index_threads(w, call.block);
  for (unsigned i = 0; i < w.words; ++i) {
    w.at_barrier[i] = 0;
    w.ready[i] = i + 1 < w.words || w.threads % 64 == 0 ? ~0ull : (1ull << w.threads % 64) - 1;
  }
  for (unsigned i = 0; i * 32 < w.threads; ++i) {
    unsigned lanes = w.threads - i * 32;
    w.warps[i].live = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    w.warps[i].groups = 0;
  }
  std::memset(w.context, 0, w.threads * sizeof(void*));
  for (unsigned t = 0; w.copies && t < w.threads; ++t) w.copies[t].waiting.clear(), w.copies[t].committed = 0;
  w.arrived = w.spins = w.interval = 0;
  w.count_now = w.any_now = 0;
  w.all_now = 1;
#ifdef CUDAOPS_LOCKSTEP
  for (unsigned t = 0; t < w.threads; ++t) w.place[t].depth = 0;
  for (unsigned i = 0; i * 32 < w.threads; ++i) w.warps[i].spinning = 0;
#endif
}

void run_block(Worker& w, const Call& call, unsigned long long linear, bool poison) {
  prepare_block(w, call, linear);
  if (poison) poison_shared(w);
  w.in_kernel = true;
#ifdef CUDAOPS_INSTRUMENTED
  checker_block_begin(w);
#endif
  if (lanes_on) lanes_block_begins();
  cudaops_switch(&w.home, target(w, reversed_threads ? w.threads - 1 : 0));
  if (lanes_on) lanes_turn(w.current);
  if (lanes_on) lanes_block_ends(w);
#ifdef CUDAOPS_INSTRUMENTED
  checker_block_end(w);
#endif
  w.in_kernel = false;
}

static void deadlock(Worker& w) {
  const void *barrier_site = nullptr, *warp_site = nullptr;
  unsigned in_warp = 0, in_cluster = 0;
  for (unsigned t = 0; t < w.threads; ++t) {
    bool of_cluster = w.cluster && w.at_cluster[t >> 6] >> (t & 63) & 1;
    in_cluster += of_cluster;
    if (of_cluster || w.at_barrier[t >> 6] >> (t & 63) & 1) barrier_site = w.site[t];
  }
  for (unsigned i = 0; i * 32 < w.threads; ++i)
    for (int g = 0; g < w.warps[i].groups; ++g) {
      in_warp += __builtin_popcount(w.warps[i].group[g].waiting);
      warp_site = w.warps[i].group[g].site;
    }
  char at_cluster[64] = "";
  const char* of = !w.cluster ? "" : w.cluster->is_grid ? "grid" : "cluster";
  if (w.cluster) snprintf(at_cluster, sizeof at_cluster, " %u at the %s's barrier,", in_cluster, of);
  stop("deadlock", warp_site ? warp_site : barrier_site,
       "no thread of block (%u,%u,%u)%s%s can go on: %u of %u wait at __syncthreads, %u in a warp "
       "operation for lanes that do not come,%s %u have ended",
       blockIdx.x, blockIdx.y, blockIdx.z, w.cluster ? " and of its " : "", of, w.arrived, w.threads,
       in_warp, at_cluster, w.threads - w.live);
}

static void outside_kernel(const char* name, const void* pc) {
  stop("crash", pc, "%s is called outside a kernel", name);
}

static inline Worker& inside(const char* name, const void* pc) {
  if (!worker || !worker->in_kernel) outside_kernel(name, pc);
  return *worker;
}

static inline void barrier(const void* site, int predicate) {
  Worker& w = inside("__syncthreads", site);
  unsigned self = w.current;
  w.site[self] = site;
  w.count_now += predicate != 0;
  w.any_now |= predicate != 0;
  w.all_now &= predicate != 0;
  make_waiting(w, self);
  w.at_barrier[self >> 6] |= 1ull << (self & 63);
  if (++w.arrived == w.live)
    barrier_complete(w);
  else
    suspend(w);
}

// Joins or opens the group of this operation and waits until it is complete.
static inline unsigned long long collective(const char* name, Collective kind, unsigned mask,
                                            unsigned long long value, unsigned source,
                                            const void* site, unsigned* members) {
  Worker& w = inside(name, site);
  unsigned self = w.current, warp_index = self >> 5, l = self & 31, bit = 1u << l;
  Warp& warp = w.warps[warp_index];
  bool implicit = mask == 0;
  warp.value[l] = value;
  warp.source[l] = source;
#ifdef CUDAOPS_LOCKSTEP
  w.place[self].calls[std::min(w.place[self].depth, Place::most_calls)] = site;
#endif
  int g = 0;
  for (; g < warp.groups; ++g) {
    Group& group = warp.group[g];
    if (group.kind != kind || group.mask != mask || (implicit && group.site != site)) continue;
#ifdef CUDAOPS_LOCKSTEP
    if (implicit && compare_places(w, self, (self & ~31u) + __builtin_ctz(group.waiting)) != 0) continue;
#endif
    break;
  }
  if (g == warp.groups) warp.group[warp.groups++] = Group{kind, implicit, mask, 0, site};
  Group& group = warp.group[g];
  group.waiting |= bit;
  unsigned needed = (mask | bit) & warp.live;
  if (!implicit && (group.waiting & needed) == needed) {
    complete(w, warp_index, g, group.waiting);
  } else {
    w.site[self] = site;
    make_waiting(w, self);
    suspend(w);
  }
  if (members) *members = warp.members[l];
  return warp.result[l];
}

unsigned lane() { return worker->current & 31; }
size_t dynamic_shared_bytes() { return worker && worker->call ? worker->call->shared_bytes : 0; }

unsigned long long warp_shuffle(unsigned mask, unsigned long long value, unsigned source) {
  return collective("a shuffle", Collective::Shuffle, mask, value, source, __builtin_return_address(0), nullptr);
}
unsigned warp_ballot(unsigned mask, bool predicate, unsigned* members) {
  return (unsigned)collective("a vote", Collective::Ballot, mask, predicate, 0, __builtin_return_address(0), members);
}
unsigned warp_match(unsigned mask, unsigned long long value) {
  return (unsigned)collective("a match", Collective::Match, mask, value, 0, __builtin_return_address(0), nullptr);
}
unsigned warp_gather(unsigned mask, unsigned long long value, unsigned long long* all) {
  unsigned members;
  collective("a reduction", Collective::Gather, mask, value, 0, __builtin_return_address(0), &members);
  // Nobody of these lanes can enter another gather before all of them have read this one.
  std::memcpy(all, worker->warps[worker->current >> 5].gathered, sizeof(unsigned long long) * 32);
  return members;
}

static AskedCopies& asked_copies(const char* name, const void* pc) {
  Worker& w = inside(name, pc);
  if (!w.copies) w.copies = new AskedCopies[max_threads];
  return w.copies[w.current];
}
void async_copy(const AsyncCopy& copy) {
  AskedCopies& asked = asked_copies("an asynchronous copy", __builtin_return_address(0));
  asked.waiting.emplace_back(copy, asked.committed);
}
void async_commit() { ++asked_copies("an asynchronous copy", __builtin_return_address(0)).committed; }
bool async_next(unsigned left, AsyncCopy* copy) {
  AskedCopies& asked = asked_copies("an asynchronous copy", __builtin_return_address(0));
  if (asked.waiting.empty() || asked.waiting.front().second + left >= asked.committed) return false;
  *copy = asked.waiting.front().first;
  asked.waiting.pop_front();
  return true;
}

#ifdef CUDAOPS_LOCKSTEP
void wait_for_warp(const void* site) {
  collective("an access", Collective::Access, 0, 0, 0, site, nullptr);
}
#endif

// To the other threads of the block, and by and by to the other blocks that run with it.
static void turn_to_others(Worker& w) {
  static thread_local unsigned turns = 0;
  Worker* other = w.cluster && ++turns % 64 == 0 ? next_block(w) : nullptr;
  if (!other) return suspend(w);
  unsigned self = w.current;
  cudaops_switch(&w.context[self], enter_block(w, *other));
}

// A thread that spins on a lock lets the thread that holds it go on.
void spin() {
#ifdef CUDAOPS_LOCKSTEP
  if (worker && worker->in_kernel) worker->warps[worker->current >> 5].spinning |= 1u << (worker->current & 31);
#endif
  if (!worker || !worker->in_kernel || ++worker->spins < 32) return;
  worker->spins = 0;
  turn_to_others(*worker);
}

}  // namespace cudaops

void __syncthreads() { cudaops::barrier(__builtin_return_address(0), 0); }
int __syncthreads_count(int predicate) {
  cudaops::barrier(__builtin_return_address(0), predicate);
  return cudaops::worker->count_then;
}
int __syncthreads_and(int predicate) {
  cudaops::barrier(__builtin_return_address(0), predicate);
  return cudaops::worker->all_then;
}
int __syncthreads_or(int predicate) {
  cudaops::barrier(__builtin_return_address(0), predicate);
  return cudaops::worker->any_then;
}
void __syncwarp(unsigned mask) {
  cudaops::collective("__syncwarp", cudaops::Collective::Sync, mask, 0, 0, __builtin_return_address(0), nullptr);
}
unsigned __activemask() {
  unsigned members;
  cudaops::collective("__activemask", cudaops::Collective::Active, 0, 1, 0, __builtin_return_address(0), &members);
  return members;
}
void __nanosleep(unsigned) {
  if (cudaops::worker && cudaops::worker->in_kernel) cudaops::turn_to_others(*cudaops::worker);
}
unsigned long long cudaops_nanoseconds() { return (unsigned long long)(cudaops::now() * 1e9); }
long long clock64() {
#if defined(__x86_64__)
  return (long long)__builtin_ia32_rdtsc();
#else
  return (long long)(cudaops::now() * 1e9);
#endif
}
