// Shared memory of a cluster: what blocks do to each other's, and whether its barrier puts it in order.
//
// A thread's access comes before another block's where that thread had passed the barrier at which the
// first arrived after its access: it has waited more often than the first had arrived by then.
#include <algorithm>

#include "machine.h"

namespace cudaops {

struct ClusterShadow {
  uint64_t write_serial, read_serial;  // of the cluster: what is of an earlier one is as if it were not
  const void *write_pc, *read_pc;
  uint32_t write_arrivals, read_arrivals;
  uint8_t writer, reader;              // ranks of blocks
  bool atomic_write, read_by_more;
};

// In the place of the second access, where a block that has ended is what an access meets.
static const void* const ended_before = &ended_before;
static const void* const ended_then = &ended_then;

static void cluster_race(const Worker& w, unsigned then, const void* then_pc, bool then_wrote, bool writes,
                         const Worker& of, const void* pc) {
  if (!first_time(found_races, pc, then_pc)) return;
  const uint3 &a = w.block_index, &b = w.cluster->blocks[then]->block_index, &c = of.block_index;
  warn("shared_race", pc, then_pc,
       "%s by block (%u,%u,%u) of shared memory of block (%u,%u,%u) that block (%u,%u,%u) %s at @OTHER@ with no "
       "barrier of the cluster between them",
       writes ? "write" : "read", a.x, a.y, a.z, c.x, c.y, c.z, b.x, b.y, b.z, then_wrote ? "writes" : "reads");
}

// An access to shared memory of `of`, a block of the running one's cluster and maybe itself.
static void follow_cluster(Worker& w, Worker& of, size_t offset, unsigned size, bool write, bool atomic, const void* pc) {
  Cluster& c = *w.cluster;
  if (!of.cluster_shadow) of.cluster_shadow = make_shadow<ClusterShadow>(c.stride);
  uint32_t arrivals = w.arrivals[w.current], waits = w.waits[w.current];
  for (unsigned i = 0; i < size; ++i) {
    ClusterShadow& s = of.cluster_shadow[offset + i];
    bool written = s.write_serial == c.serial, read = s.read_serial == c.serial;
    if (written && s.writer != w.rank && !(atomic && s.atomic_write) && waits <= s.write_arrivals)
      cluster_race(w, s.writer, s.write_pc, true, write, of, pc);
    if (write && read && (s.reader != w.rank || s.read_by_more) && waits <= s.read_arrivals)
      cluster_race(w, s.reader, s.read_pc, false, true, of, pc);
    if (write) {
      s.write_serial = c.serial, s.write_pc = pc, s.write_arrivals = arrivals;
      s.writer = (uint8_t)w.rank, s.atomic_write = atomic;
      continue;
    }
    bool still = read && waits <= s.read_arrivals;  // what was read before is not in order with this
    s.read_by_more = still && (s.read_by_more || s.reader != w.rank);
    if (!s.read_by_more || s.reader == w.rank) s.reader = (uint8_t)w.rank, s.read_pc = pc;
    s.read_serial = c.serial, s.read_arrivals = still ? std::max(s.read_arrivals, arrivals) : arrivals;
  }
}

// What one block leaves in another's shared memory is written there, and what nobody wrote is not.
static void follow_contents(Worker& of, size_t offset, unsigned size, bool write, bool atomic, const void* pc) {
  bool dynamic = offset >= of.cluster->statics;
  Shadow* shadow = dynamic ? of.dynamic_shadow + (offset - of.cluster->statics) : of.shadow + offset;
  for (unsigned i = 0; i < size; ++i) {
    bool unwritten = shadow[i].write_stamp < of.block_stamp;
    if (unwritten && write) shadow[i].write_stamp = of.block_stamp, shadow[i].write_pc = pc;
    if (!unwritten || write || atomic || !first_time(found_reads, pc, nullptr)) continue;
    const uint3& b = of.block_index;
    warn("uninitialised_read", pc, nullptr, "reads shared memory of block (%u,%u,%u) that no thread has written", b.x, b.y, b.z);
  }
}

static inline bool in_cluster(const Worker& w, uintptr_t a) {
  return w.cluster && !w.cluster->is_grid && a - (uintptr_t)w.cluster->area < w.cluster->stride * w.cluster->size;
}

static void check_remote(Worker& w, uintptr_t a, unsigned size, bool write, bool atomic, const void* pc) {
  Cluster& c = *w.cluster;
  Worker& of = *c.blocks[(a - (uintptr_t)c.area) / c.stride];
  size_t offset = (a - (uintptr_t)c.area) % c.stride, own = (size_t)(w.shared_high - w.shared_low);
  bool dynamic = offset >= c.statics;
  size_t end = dynamic ? c.statics + w.call->shared_bytes : own;
  const uint3& b = of.block_index;
  const char* verb = write ? "write" : "read";
  if (offset + size > end)
    stop("out_of_bounds", pc, "%s of %u bytes, %zu bytes past the end of %s shared memory of block (%u,%u,%u) (size %zu bytes)",
         verb, size, offset > end ? offset - end : 0, dynamic ? "dynamic" : "static", b.x, b.y, b.z,
         dynamic ? w.call->shared_bytes : own);
  if (&of == &w)
    stop("crash", pc, "%s through an address of the block's own shared memory that another block made: map it where it is used", verb);
  if (depth() != Depth::Full) return;
  if (!w.waits[w.current] && first_time(found_races, pc, nullptr))
    warn("shared_race", pc, nullptr,
         "%s of shared memory of block (%u,%u,%u) before the first barrier of the cluster: the block may not have begun",
         verb, b.x, b.y, b.z);
  if (!of.live && first_time(found_races, pc, ended_before))
    warn("shared_race", pc, nullptr,
         "%s of shared memory of block (%u,%u,%u), which may have ended: no barrier of the cluster stands behind the last access",
         verb, b.x, b.y, b.z);
  if (!of.seen_pc || w.arrivals[w.current] >= of.seen_at)
    of.seen_pc = pc, of.seen_by = w.rank, of.seen_at = w.arrivals[w.current];
  follow_cluster(w, of, offset, size, write, atomic, pc);
  follow_contents(of, offset, size, write, atomic, pc);
}

// After the last thread of a block: has every other block's access to its shared memory come before?
void checker_cluster_block_over(Worker& w) {
  if (depth() != Depth::Full || !w.seen_pc || w.waits[w.current] > w.seen_at) return;
  if (!first_time(found_races, w.seen_pc, ended_then)) return;
  const uint3 &b = w.block_index, &by = w.cluster->blocks[w.seen_by]->block_index;
  warn("shared_race", w.seen_pc, nullptr,
       "block (%u,%u,%u) is in shared memory of block (%u,%u,%u), which ends: no barrier of the cluster stands behind the last access",
       by.x, by.y, by.z, b.x, b.y, b.z);
}

static void races_cluster_barrier(Cluster& c);

// It stands for the barrier of each block too; that of a grid as well.
void checker_cluster_barrier(Cluster& c) {
  for (unsigned i = 0; i < c.size; ++i) ++c.blocks[i]->stamp;
  races_cluster_barrier(c);
}

void checker_turn(Cluster& c, Worker& to) {
#ifdef CUDAOPS_TRACE
  c.traced->recorder = trace::current_recorder();
  trace::current_recorder() = static_cast<trace::Recorder*>(to.recorder);
#endif
  c.traced = &to;
}

}  // namespace cudaops
