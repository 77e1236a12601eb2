// Inside the runtime object: workers, fibers, warps, allocations, and where findings are reported.
#pragma once
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <vector>

#include "cudaops/context.h"
#include "cudaops/launch.h"
#include "cudaops/runtime_api.h"
#include "margins.h"

extern "C" {
extern __thread char cudaops_shared_begin[], cudaops_shared_end[];
}

namespace cudaops {

constexpr unsigned max_threads = 1024;         // of a block, every compute capability since 2.0
constexpr unsigned most_cluster = 8;           // blocks of a cluster, on every device that has them
// Of a grid that waits for itself: what Hopper keeps, 132 SMs of 2,048 (H100 Tensor Core GPU Architecture).
constexpr unsigned long long most_together = 132 * 2048;
constexpr unsigned most_guarded = 16 << 10;    // of them have a guard page each: a process has 65,530 mappings
constexpr size_t static_shared_limit = 48 << 10;
constexpr size_t dynamic_shared_limit = 99 << 10;  // sm_86, after cudaFuncSetAttribute
// Reserved a worker: four times the limit (half widened to double), and room for larger devices.
constexpr size_t dynamic_shared_room = 1 << 20;
constexpr size_t fiber_bytes = 256 << 10;
constexpr size_t page = 4096;
// A not-a-number as f32 and, repeated, as f64; -1 nowhere.
constexpr uint32_t guard_pattern = 0xfff5c3a9u;

enum class Collective : unsigned char { Shuffle, Ballot, Match, Gather, Sync, Active, Access };

// Lanes of one warp that wait for each other.
struct Group {
  Collective kind;
  bool implicit;          // no mask given: whoever is there when nobody else can move
  unsigned mask, waiting;
  const void* site;
};

#ifdef CUDAOPS_LOCKSTEP
// Where a thread is: the calls it is in, outermost first, and the access before which it waits.
struct Place {
  static constexpr unsigned most_calls = 30;
  unsigned depth;
  const void* calls[most_calls + 1];
};
#endif

struct Warp {
  unsigned live = 0;
#ifdef CUDAOPS_LOCKSTEP
  unsigned spinning = 0;  // lanes that found a lock taken: the others go first
#endif
  int groups = 0;
  Group group[32];
  unsigned long long value[32], result[32];
  unsigned source[32], members[32];
  unsigned long long gathered[32];
#ifdef CUDAOPS_INSTRUMENTED
  uint32_t clock[32];        // warp synchronisations of a lane so far
  uint32_t known[32][32];    // known[i][j]: lane j's clock when lane i last heard of it
#endif
};

enum class Memory : unsigned char { Device, Managed, Pinned };

struct Allocation {
  uintptr_t begin;      // what the program holds
  size_t size;
  uintptr_t low, high;  // the mapping, guard pages included
  Memory kind;
  int number;           // in order of creation; in a unit the workload's index, scratch below 0
  const struct Followed* races = nullptr;  // notes on who touches it, where the checker makes some
};

// Blocks that wait for each other: a cluster's, which see each other's shared memory too, or those of a
// whole grid that is launched to wait for itself. One runs at a time, on one thread of the machine, with
// its own shared memory in place; the others' lies in `area`.
struct Cluster {
  std::vector<struct Worker*> blocks;
  struct Worker* traced = nullptr;  // whose accesses are noted down now
  bool is_grid = false;
  dim3 dims;
  unsigned size = 0, live = 0, arrived = 0, phase = 0;  // threads; barriers that are behind them
  char* area = nullptr;
  size_t area_bytes = 0, stride = 0, statics = 0;  // bytes of a block there: static arrays, then dynamic ones
  uint64_t serial = 0;             // of the cluster, among those that ran here
};

struct Worker {
  int index = 0;
  bool in_kernel = false;
  char* stacks = nullptr;    // max_threads stacks, each above a guard page
  size_t stack_stride = 0;
  unsigned stacks_ready = 0;
  bool has_guards = true;    // below each stack
  std::vector<unsigned> idle_stacks;
  void* home = nullptr;      // the worker's own stack, while it runs a block

  const Call* call = nullptr;
  unsigned block_linear = 0, threads = 0, live = 0, words = 0, current = 0, interval = 0;
  uint64_t ready[max_threads / 64], at_barrier[max_threads / 64];
  void* context[max_threads];    // saved stack pointer; null: not started
  unsigned stack_of[max_threads];
  const void* site[max_threads];
  uint3 index_of[max_threads];
  unsigned index_x = 0, index_y = 0, index_z = 0;
  unsigned arrived = 0, spins = 0;
  int count_now = 0, any_now = 0, all_now = 1, count_then = 0, any_then = 0, all_then = 1;
  Warp warps[max_threads / 32];

  char *shared_low = nullptr, *shared_high = nullptr;  // this worker's static shared arrays

  Cluster* cluster = nullptr;  // while it runs a block of one
  Cluster* own = nullptr;      // whose first block it runs, once it has run one
  unsigned rank = 0;
  uint3 block_index = {};
  uint64_t at_cluster[max_threads / 64];
  unsigned arrivals[max_threads], waits[max_threads];  // at the cluster's barrier
  struct ClusterShadow* cluster_shadow = nullptr;
  const void* seen_pc = nullptr;                       // who of another block was in its shared memory last,
  unsigned seen_by = 0, seen_at = 0;                   // how often that thread had arrived by then
  struct AskedCopies* copies = nullptr;                // of each thread, once one has asked for any
  void* recorder = nullptr;                            // of its accesses, where they are traced
#ifdef CUDAOPS_LOCKSTEP
  Place place[max_threads];
#endif
#ifdef CUDAOPS_INSTRUMENTED
  struct Shadow *shadow = nullptr, *dynamic_shadow = nullptr;
  char* dynamic_low = nullptr;      // dynamic shared memory, all that is reserved
  Allocation recent[4] = {};        // hit last; valid while `allocations_known` stands
  uint64_t allocations_known = 0;
  unsigned turn = 0;
  uint64_t stamp = 1, block_stamp = 1;
  struct Races* races = nullptr;    // what the block knows of others
  bool is_storing = false;          // what the last access noted may not be made yet
  uintptr_t acquires = 0;           // address that the last access read atomically, until the next one
  // Where each thread made its last access, and a bit for each place where it has made one.
  const void* last_place[max_threads];
  uint64_t places[max_threads];
  static constexpr unsigned most_past = 8;
  const void* past[most_past];      // where threads made their last access that did not come to a barrier
  const void* passed_barrier = nullptr;
  unsigned past_count = 0, past_threads = 0;
#endif
};

extern __thread Worker* worker;

// Made before the program's own objects and never destroyed: these may still call at exit.
template <class T>
union Lasting {
  T value;
  Lasting() : value() {}
  ~Lasting() {}
};
#define CUDAOPS_LASTING __attribute__((init_priority(102)))

// Sorted by address; changes only between launches.
extern std::vector<Allocation>& allocations;
// Held by a launch, and by whatever reads or changes the allocations beside one: host threads may do both.
extern std::recursive_mutex host_lock;
// Begins `shift` bytes, a multiple of 256, earlier than where it would end at inaccessible memory.
Allocation* allocate(size_t size, Memory kind, int number, size_t shift = 0);
bool release(uintptr_t begin);
// Whether it is kept for a graph and not done now.
bool keeps(const Call& call);
bool keeps(const cudaMemcpy3DParms& copy);
bool keeps(const cudaMemsetParams& fill);
bool keeps(const cudaHostNodeParams& call);
bool keeps_event(cudaGraphNodeType type, cudaEvent_t event);
bool keeps_allocation(void* pointer, size_t bytes);
bool keeps_release(void* pointer);
cudaError_t fail(cudaError_t error);
cudaError_t reserve(void** pointer, size_t bytes, Memory kind);
cudaError_t drop(void* pointer);
bool is_global(const void* pointer);
size_t optin_limit();
void leave_pool(const void* pointer);
void settle_pools();  // what the host waited for is no longer reserved
const char* name_of_function(uintptr_t address);  // as the compiler has it; null: there is none
bool is_of_graph(const void* pointer);  // memory that nodes of a graph allocate: it stays
cudaMemcpy3DParms copy_of(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);

Allocation* allocation_around(uintptr_t address);  // guard pages included
void check_guards(const Call* call);
uint64_t generation();
uint64_t allocations_version();                    // counts cudaMalloc and cudaFree
void allocations_changed();
void touch();                                      // memory changed or may have
size_t host_bytes_available();

extern GlobalVariable* global_variables;

// Pointers to functions as a number that stands for the name: 0 where there is no function; what stands
// in a variable that holds such, so that another executable may read it; and the other way round.
uint64_t function_token(uintptr_t address);
std::vector<char> portable(const GlobalVariable& v);
const void* function_of(unsigned long long token);
void make_own(GlobalVariable& v);

// CUDAOPS_ORDER: threads of a block, and with `all` blocks too, begin with the last.
extern bool reversed_threads, reversed_blocks;

// The report: tab-separated lines, one fact each, read by cudaops.executors.cpu.report.
void open_report();
void report(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void stop(const char* kind, const void* pc, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
void warn(const char* kind, const void* pc, const void* other, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
void install_fault_handlers();
void install_signal_stack();
void note_launcher();                               // whose stack holds the arguments of a launch
void note_worker();
size_t left_piece(uintptr_t address, size_t bytes, const void* pc);  // see device_heap.cpp
bool known_to_host(uintptr_t address);  // loaded, a stack, thread-local or from malloc
// "of parameter 2" where an argument of the running launch points into it.
void describe_place(char* text, size_t size, uintptr_t address, size_t bytes);

Worker* make_worker(int index);
void run_block(Worker& w, const Call& call, unsigned long long linear, bool poison);
void run_cluster(Worker& w, const Call& call, unsigned long long number, bool poison);
inline unsigned blocks_of_cluster(const Call& call) { return call.cluster.x * call.cluster.y * call.cluster.z; }
// All blocks over all workers; how many of them where no further one is begun after `deadline`.
unsigned long long run_grid(const Call& call, double deadline = 0);
[[noreturn]] void end_between_launches();          // what was recorded is told, the process ends
bool printed_in_kernel();
const char* option(const char* name);
bool lets_beyond();  // accesses a little past an allocation do not end the process
extern std::atomic<int> beyond_told;
constexpr int most_beyond_told = 8;
double now();

// What each lane does in a build that counts (lanes.cpp): `lanes_turn` as a thread gives way.
extern bool lanes_on;
void lanes_start();
void lanes_turn(unsigned thread);
void lanes_block_begins();
void lanes_block_ends(Worker& w);
void lanes_write();

// Accepts or records a launch before and after it runs; a program's recorder, or a unit's nothing.
struct Recorder {
  virtual ~Recorder() = default;
  virtual bool skip(const Call&) { return false; }
  virtual void before(const Call&) {}
  virtual double deadline(const Call&) { return 0; }  // when the launch ends unfinished; 0: never
  virtual void after(const Call&, double /*seconds*/, double /*share of its blocks that ran*/) {}
  virtual bool forgives() { return false; }  // a fault that may come of what was not executed
  virtual void end() {}
};
extern Recorder* recorder;

#ifdef CUDAOPS_INSTRUMENTED
void checker_launch_begin();  // of a plan: what was said of the last one may be said again
void checker_launch_end();    // reports how many accesses it made, and how far into each allocation
void checker_launch(const Call& call);
void checker_block_begin(Worker& w);
void checker_block_end(Worker& w);
void checker_barrier(Worker& w);
void checker_warp(Worker& w, Warp& warp, unsigned members);
void checker_cluster_barrier(Cluster& c);
void checker_cluster_block_over(Worker& w);
void checker_turn(Cluster& c, Worker& to);         // what follows is done by this block of it
#ifdef CUDAOPS_LOCKSTEP
void wait_for_warp(const void* site);  // until the lanes that will make this access are all there
#endif
extern bool trace_on;
void trace_regions();
void trace_finish();
#endif

}  // namespace cudaops
