// The blocks of a cluster on one worker, or of a grid that is launched to wait for itself: they take turns
// where all threads of one wait. Shared memory of the block that runs is where the author's object has it;
// that of the others lies in the cluster's area meanwhile, where `map_shared_rank` points.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "machine.h"

namespace cudaops {

static char* kept(Worker& w) { return w.cluster->area + w.rank * w.cluster->stride; }

static void copy_shared(Worker& w, bool out) {
  char* there = kept(w);
  Cluster& c = *w.cluster;
  size_t statics = (size_t)(w.shared_high - w.shared_low), dynamics = w.call->shared_bytes;
  std::memcpy(out ? there : w.shared_low, out ? w.shared_low : there, statics);
  std::memcpy(out ? there + c.statics : cudaops_dynamic_shared, out ? cudaops_dynamic_shared : there + c.statics, dynamics);
}

static Worker* next_block(Worker& w) {
  if (!w.cluster) return nullptr;
  Cluster& c = *w.cluster;
  for (unsigned i = 1; i < c.size; ++i) {
    Worker& other = *c.blocks[(w.rank + i) % c.size];
    for (unsigned word = 0; word < other.words; ++word)
      if (other.ready[word]) return &other;
  }
  return nullptr;
}

// Where the block goes on: what a context is switched to.
static void* enter_block(Worker& from, Worker& to) {
  worker = nullptr;  // the copies are nobody's accesses
  if (&from != &to) copy_shared(from, true);
  copy_shared(to, false);
  worker = &to;
  blockIdx = to.block_index;
#ifdef CUDAOPS_INSTRUMENTED
  checker_turn(*to.cluster, to);
#endif
  return target(to, (unsigned)next_ready(to, to.current));
}

static void complete_cluster_barrier(Cluster& c) {
#ifdef CUDAOPS_INSTRUMENTED
  checker_cluster_barrier(c);
#endif
  ++c.phase;
  c.arrived = 0;
  for (unsigned i = 0; i < c.size; ++i) {
    Worker& w = *c.blocks[i];
    for (unsigned word = 0; word < w.words; ++word) {
      w.ready[word] |= w.at_cluster[word];
      w.at_cluster[word] = 0;
    }
    ++w.interval;
  }
}

static void cluster_thread_ended(Worker& w, unsigned t) {
  Cluster& c = *w.cluster;
  --c.live;
  if (w.arrivals[t] > c.phase) --c.arrived;
#ifdef CUDAOPS_INSTRUMENTED
  if (!w.live) checker_cluster_block_over(w);
#endif
  if (c.arrived && c.arrived == c.live) complete_cluster_barrier(c);
}

static Cluster& cluster_of(Worker& w, const Call& call) {
  if (!w.own) {
    w.own = new Cluster;
    w.own->blocks = {&w};
    w.own->traced = &w;
    w.own->statics = ((size_t)(w.shared_high - w.shared_low) + page - 1) / page * page;
  }
  Cluster& c = *w.own;
  c.is_grid = call.is_together;
  c.dims = call.cluster;
  c.size = blocks_of_cluster(call);
  c.blocks.resize(std::max<size_t>(c.blocks.size(), c.size));
  c.stride = c.statics + (c.is_grid ? (call.shared_bytes + page - 1) / page * page : dynamic_shared_room);
  size_t bytes = c.stride * std::max(c.size, most_cluster);
  if (c.area_bytes < bytes) {
    if (c.area) munmap(c.area, c.area_bytes);
    void* area = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) stop("infrastructure", nullptr, "no address space for the shared memory of blocks that run together");
    c.area = static_cast<char*>(area);
    c.area_bytes = bytes;
  }
  return c;
}

static void join(Cluster& c, unsigned rank, const Call& call, unsigned long long linear) {
  if (!c.blocks[rank]) {
    c.blocks[rank] = make_worker(c.blocks[0]->index);
    c.blocks[rank]->has_guards = (rank + 1) * max_threads <= most_guarded;
  }
  Worker& w = *c.blocks[rank];
  prepare_block(w, call, linear);
  w.cluster = &c;
  w.rank = rank;
  w.current = reversed_threads ? 0 : w.threads - 1;  // the one before the first
  std::memset(w.at_cluster, 0, sizeof w.at_cluster);
  std::memset(w.arrivals, 0, w.threads * sizeof w.arrivals[0]);
  std::memset(w.waits, 0, w.threads * sizeof w.waits[0]);
  w.seen_pc = nullptr;
  c.live += w.threads;
}

void run_cluster(Worker& w, const Call& call, unsigned long long number, bool poison) {
  const dim3 &g = call.grid, &d = call.cluster;
  unsigned long long x = number % (g.x / d.x), y = number / (g.x / d.x) % (g.y / d.y),
                     z = number / (g.x / d.x) / (g.y / d.y);
  Cluster& c = cluster_of(w, call);
  c.live = c.arrived = c.phase = 0;
  ++c.serial;
  for (unsigned rank = 0; rank < c.size; ++rank) {
    unsigned long long bx = x * d.x + rank % d.x, by = y * d.y + rank / d.x % d.y, bz = z * d.z + rank / d.x / d.y;
    join(c, rank, call, bx + g.x * (by + (unsigned long long)g.y * bz));
    if (poison) {
      std::memset(kept(*c.blocks[rank]), 0xff, (size_t)(w.shared_high - w.shared_low));
      std::memset(kept(*c.blocks[rank]) + c.statics, 0xff, call.shared_bytes);
    }
  }
  for (unsigned rank = 0; rank < c.size; ++rank) {
    c.blocks[rank]->in_kernel = true;
#ifdef CUDAOPS_INSTRUMENTED
    blockIdx = c.blocks[rank]->block_index;
    checker_turn(c, *c.blocks[rank]);
    checker_block_begin(*c.blocks[rank]);
#endif
  }
  Worker& first = reversed_blocks ? *c.blocks[c.size - 1] : w;
  cudaops_switch(&w.home, enter_block(first, first));
  worker = &w;
  for (unsigned rank = c.size; rank-- > 0;) {  // the worker's own comes last
    Worker& over = *c.blocks[rank];
#ifdef CUDAOPS_INSTRUMENTED
    checker_turn(c, over);
    checker_block_end(over);
#endif
    over.in_kernel = false;
    over.cluster = nullptr;
  }
}

static void arrive(Worker& w, const char* whose, const void* site) {
  unsigned t = w.current;
  if (w.arrivals[t] != w.waits[t])
    stop("crash", site, "a thread arrives at the %s's barrier again before it has waited at it", whose);
  ++w.arrivals[t];
  if (++w.cluster->arrived == w.cluster->live) complete_cluster_barrier(*w.cluster);
}

static void wait(Worker& w, const char* whose, const void* site) {
  unsigned t = w.current;
  if (w.arrivals[t] == w.waits[t])
    stop("crash", site, "a thread waits at the %s's barrier and has not arrived at it", whose);
  if (w.arrivals[t] > w.cluster->phase) {
    w.site[t] = site;
    make_waiting(w, t);
    w.at_cluster[t >> 6] |= 1ull << (t & 63);
    suspend(w);
  }
  ++w.waits[t];
}

// Null where there is one block, which has a barrier of its own.
static Cluster* cluster_in(const Worker& w) { return w.cluster && !w.cluster->is_grid ? w.cluster : nullptr; }

void cluster_arrive() {
  const void* site = __builtin_return_address(0);
  Worker& w = inside("the cluster's barrier", site);
  if (cluster_in(w)) arrive(w, "cluster", site);
}

void cluster_wait() {
  const void* site = __builtin_return_address(0);
  Worker& w = inside("the cluster's barrier", site);
  if (!cluster_in(w)) return barrier(site, 0);
  wait(w, "cluster", site);
}

static bool waits_for_grid(const Worker& w) { return w.cluster && w.cluster->is_grid; }

bool is_together() {
  const Worker& w = inside("this_grid", __builtin_return_address(0));
  return waits_for_grid(w) || (unsigned long long)gridDim.x * gridDim.y * gridDim.z == 1;
}

void grid_arrive() {
  const void* site = __builtin_return_address(0);
  Worker& w = inside("the grid's barrier", site);
  if (waits_for_grid(w)) return arrive(w, "grid", site);
  if (!is_together())
    stop("crash", site, "kernel %s waits for all blocks of its grid and is not launched by cudaLaunchCooperativeKernel",
         w.call->kernel);
}

void grid_wait() {
  const void* site = __builtin_return_address(0);
  Worker& w = inside("the grid's barrier", site);
  if (!waits_for_grid(w)) return barrier(site, 0);
  wait(w, "grid", site);
}

ClusterPlace cluster_place() {
  Worker& w = inside("this_cluster", __builtin_return_address(0));
  dim3 one{1, 1, 1}, origin{0, 0, 0};
  if (!cluster_in(w)) return {one, origin, 1, 0};
  const dim3& d = w.cluster->dims;
  return {d, dim3(w.rank % d.x, w.rank / d.x % d.y, w.rank / d.x / d.y), w.cluster->size, w.rank};
}

// Bytes from the beginning of a block's part of the area; below 0 where it is no shared memory of ours.
static long long offset_of(const Worker& w, const char* p) {
  if (p >= w.shared_low && p < w.shared_high) return p - w.shared_low;
  if (p < cudaops_dynamic_shared || p >= cudaops_dynamic_shared + dynamic_shared_room) return -1;
  return (cluster_in(w) ? (long long)w.cluster->statics : 0) + (p - cudaops_dynamic_shared);
}

void* cluster_map(const void* shared, unsigned rank) {
  const void* site = __builtin_return_address(0);
  Worker& w = inside("map_shared_rank", site);
  long long offset = offset_of(w, static_cast<const char*>(shared));
  if (offset < 0) stop("crash", site, "map_shared_rank is given an address that is not in the block's own shared memory");
  unsigned size = cluster_in(w) ? w.cluster->size : 1;
  if (rank >= size) stop("crash", site, "map_shared_rank: there is no block %u in a cluster of %u", rank, size);
  if (!cluster_in(w) || rank == w.rank) return const_cast<void*>(shared);
  return w.cluster->area + rank * w.cluster->stride + offset;
}

bool is_shared(const void* p) {
  return offset_of(inside("isspacep", __builtin_return_address(0)), static_cast<const char*>(p)) >= 0;
}

unsigned cluster_rank_of(const void* shared) {
  const void* site = __builtin_return_address(0);
  Worker& w = inside("query_shared_rank", site);
  auto* p = static_cast<const char*>(shared);
  if (offset_of(w, p) >= 0) return cluster_in(w) ? w.rank : 0;
  if (!cluster_in(w) || (size_t)(p - w.cluster->area) >= w.cluster->stride * w.cluster->size)
    stop("crash", site, "query_shared_rank is given an address that is in no block's shared memory");
  return (unsigned)((size_t)(p - w.cluster->area) / w.cluster->stride);
}

}  // namespace cudaops
