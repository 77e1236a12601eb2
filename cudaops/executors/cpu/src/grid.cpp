// All blocks of a launch over the worker threads, and the checks a driver makes before it launches.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "cudaops/runtime_api.h"
#include "machine.h"

namespace cudaops {

void set_error(cudaError_t error);
size_t dynamic_limit_of(const void* function);

GlobalVariable* global_variables = nullptr;
GlobalVariable::GlobalVariable(const char* name, const void* address, size_t size, bool functions)
    : name(name), address(const_cast<void*>(address)), size(size), functions(functions), next(global_variables) {
  global_variables = this;
}

static Recorder nothing;
Recorder* recorder = &nothing;

bool poison_shared_memory = false;
std::vector<unsigned long long> selected_blocks;  // empty: all
bool only_selected_blocks = false;

struct Pool {
  std::mutex lock;
  std::condition_variable wake, done;
  const Call* call = nullptr;
  // Blocks, or clusters of them where the launch has some; `chosen` where not all of them run.
  std::vector<unsigned long long> chosen;
  unsigned long long blocks = 0, serial = 0, run = 1;
  double deadline = 0;
  std::atomic<unsigned long long> next{0}, ran{0};
  unsigned busy = 0, size = 0;
};
static Pool* pool = nullptr;
// A worker takes whole rows of the grid where every worker then has at least this many: workers that
// walk along their rows in step find in the cache what the other has read. Measured with a naive
// 1024 x 1024 matrix product, 16 x 16 threads a block, on two cores: 2.2 s by single blocks, 1.4 by rows.
static constexpr unsigned long long rows_each = 8;
std::recursive_mutex host_lock;

Worker* make_worker(int index) {
  auto* w = new Worker;
  w->index = index;
  w->stack_stride = fiber_bytes + page;
  void* stacks = mmap(nullptr, w->stack_stride * max_threads, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) stop("infrastructure", nullptr, "no address space for the stacks of a block's threads");
  w->stacks = static_cast<char*>(stacks);
  w->shared_low = cudaops_shared_begin + shared_marker;
  w->shared_high = cudaops_shared_end;
#ifdef CUDAOPS_INSTRUMENTED
  w->dynamic_low = cudaops_dynamic_shared;
#endif
  return w;
}

// In ascending order, so that the lowest block that has not ended is always on some worker: blocks
// that wait for lower ones go on.
// What the processor rounds to while a kernel runs: `up`, `down`, or else to the nearest number.
static int kernel_rounding() {
  const char* asked = option("CUDAOPS_ROUNDING");
  if (!asked) return FE_TONEAREST;
  return std::strcmp(asked, "up") == 0 ? FE_UPWARD : FE_DOWNWARD;
}

static void take_blocks_as_rounded(Worker& w) {
  for (;;) {
    unsigned long long i = pool->next.fetch_add(pool->run, std::memory_order_relaxed);
    if (i >= pool->blocks || (pool->deadline && now() > pool->deadline)) return;
    unsigned long long end = std::min(i + pool->run, pool->blocks);
    pool->ran.fetch_add(end - i, std::memory_order_relaxed);
    for (; i < end; ++i) {
      unsigned long long chosen = only_selected_blocks ? pool->chosen[i] : reversed_blocks ? pool->blocks - 1 - i : i;
      if (blocks_of_cluster(*pool->call) > 1) run_cluster(w, *pool->call, chosen, poison_shared_memory);
      else run_block(w, *pool->call, chosen, poison_shared_memory);
    }
  }
}

static void take_blocks(Worker& w) {
  static const int rounding = kernel_rounding();
  if (rounding != FE_TONEAREST) std::fesetround(rounding);
  take_blocks_as_rounded(w);
  if (rounding != FE_TONEAREST) std::fesetround(FE_TONEAREST);
}

static void* serve(void* raw) {
  auto index = (int)(intptr_t)raw;
  Worker* self = make_worker(index);
  worker = self;
  install_signal_stack();
  unsigned long long seen = 0;
  std::unique_lock<std::mutex> hold(pool->lock);
  for (;;) {
    pool->wake.wait(hold, [&] { return pool->serial != seen; });
    seen = pool->serial;
    hold.unlock();
    take_blocks(*self);
    hold.lock();
    if (--pool->busy == 0) pool->done.notify_one();
  }
  return nullptr;
}

static void start_pool() {
  pool = new Pool;
  unsigned wanted = std::thread::hardware_concurrency();
  if (const char* text = option("CUDAOPS_WORKERS")) wanted = (unsigned)atoi(text);
  pool->size = std::max(1u, std::min(wanted, 256u));
  worker = make_worker(0);
  install_signal_stack();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 20);
  for (unsigned i = 1; i < pool->size; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, &serve, (void*)(intptr_t)i) != 0)
      stop("infrastructure", nullptr, "cannot start a worker thread");
    pthread_detach(thread);
  }
}

static unsigned long long cluster_around(const Call& call, unsigned long long block) {
  const dim3 &g = call.grid, &c = call.cluster;
  unsigned long long x = block % g.x / c.x, y = block / g.x % g.y / c.y, z = block / g.x / g.y / c.z;
  return x + (g.x / c.x) * (y + (unsigned long long)(g.y / c.y) * z);
}

unsigned long long run_grid(const Call& call, double deadline) {
#ifdef CUDAOPS_INSTRUMENTED
  note_launcher();
  checker_launch(call);
#endif
  unsigned long long blocks = (unsigned long long)call.grid.x * call.grid.y * call.grid.z;
  pool->call = &call;
  unsigned each = blocks_of_cluster(call);
  pool->blocks = blocks / each;
  if (only_selected_blocks) {
    pool->chosen.clear();
    for (auto b : selected_blocks)
      if (b < blocks) pool->chosen.push_back(each > 1 ? cluster_around(call, b) : b);
    if (each > 1) {  // each cluster once, whichever of its blocks are asked for
      std::sort(pool->chosen.begin(), pool->chosen.end());
      pool->chosen.erase(std::unique(pool->chosen.begin(), pool->chosen.end()), pool->chosen.end());
    }
    pool->blocks = pool->chosen.size();
  }
  pool->next = 0;
  pool->ran = 0;
  pool->deadline = deadline;
  bool by_rows = !deadline && !only_selected_blocks && each == 1 && blocks / call.grid.x >= pool->size * rows_each;
  pool->run = by_rows ? call.grid.x : 1;
  unsigned helpers = pool->blocks > 1 ? pool->size - 1 : 0;
  if (helpers) {
    std::lock_guard<std::mutex> hold(pool->lock);
    pool->busy = helpers;
    ++pool->serial;
    pool->wake.notify_all();
  }
  take_blocks(*worker);
  if (helpers) {
    std::unique_lock<std::mutex> hold(pool->lock);
    pool->done.wait(hold, [] { return pool->busy == 0; });
  }
  return pool->ran * each;
}

// What a driver refuses (CUDA C++ Programming Guide, table of technical specifications).
static cudaError_t refusal(const Call& call, const char** why) {
  const dim3 &g = call.grid, &b = call.block;
  unsigned long long threads = (unsigned long long)b.x * b.y * b.z;
  if (!g.x || !g.y || !g.z) return *why = "the grid is empty", cudaErrorInvalidConfiguration;
  if (!threads) return *why = "the block is empty", cudaErrorInvalidConfiguration;
  if (threads > max_threads || b.x > 1024 || b.y > 1024 || b.z > 64)
    return *why = "a block has at most 1024 threads (z at most 64)", cudaErrorInvalidConfiguration;
  if (g.x > 2147483647u || g.y > 65535 || g.z > 65535)
    return *why = "a grid has at most 2147483647 x 65535 x 65535 blocks", cudaErrorInvalidConfiguration;
  const dim3& c = call.cluster;
  if (call.is_together && blocks_of_cluster(call) * threads > most_together)
    return *why = "a grid that waits for itself has as many threads as a device keeps at once", cudaErrorCooperativeLaunchTooLarge;
  if (!c.x || !c.y || !c.z || (!call.is_together && blocks_of_cluster(call) > most_cluster))
    return *why = "a cluster has 1 to 8 blocks", cudaErrorInvalidConfiguration;
  if (g.x % c.x || g.y % c.y || g.z % c.z)
    return *why = "the grid is no multiple of the cluster", cudaErrorInvalidConfiguration;
  if (call.shared_bytes > dynamic_limit_of(call.function))
    return *why = "dynamic shared memory exceeds the limit (48 KiB, or what cudaFuncSetAttribute allows up to 99 KiB)",
           cudaErrorInvalidValue;
  return cudaSuccess;
}

bool launches_must_be_valid = false;  // a unit: a refused launch is its result

// Launches by kernels, which begin after the grid that makes them: nothing in it may wait for them.
struct Child {
  Call call;
  void* closure;
};
static std::deque<Child> children;
static std::mutex children_lock;
static bool is_running_children = false;

static void run_children() {
  is_running_children = true;
  for (; !children.empty(); children.pop_front()) {
    Child child = children.front();  // by its own copies: it may launch more
    child.call.submit_copy(child.closure, child.call);
  }
  is_running_children = false;
}

void submit(const Call& call) {
  if (worker && worker->in_kernel) {
    std::lock_guard<std::mutex> hold(children_lock);
    // Who asks for some blocks asks what those do themselves.
    if (!only_selected_blocks) children.push_back(Child{call, call.copy(call.closure)});
    return;
  }
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  const char* why = nullptr;
  if (is_running_children) {
    if (refusal(call, &why) == cudaSuccess) run_grid(call, 0);
    return;
  }
  if (keeps(call)) return;
  cudaError_t error = refusal(call, &why);
  if (error != cudaSuccess) {
    if (launches_must_be_valid)
      stop("launch_refused", nullptr, "%s: grid (%u,%u,%u), block (%u,%u,%u), %zu bytes of dynamic shared memory: %s",
           call.kernel, call.grid.x, call.grid.y, call.grid.z, call.block.x, call.block.y, call.block.z,
           call.shared_bytes, why);
    report("refused\t%s\t%d\tgrid (%u,%u,%u), block (%u,%u,%u), %zu bytes of dynamic shared memory: %s", call.kernel,
           call.site, call.grid.x, call.grid.y, call.grid.z, call.block.x, call.block.y, call.block.z, call.shared_bytes,
           why);
    set_error(error);
    return;
  }
  if (recorder->skip(call)) return;
  if (!pool) start_pool();
  if (!worker) worker = make_worker(0);  // another host thread launches
  recorder->before(call);
  double start = now();
  unsigned long long ran = run_grid(call, recorder->deadline(call));
  run_children();
  double seconds = now() - start;
  check_guards(&call);
  recorder->after(call, seconds, (double)ran / ((double)call.grid.x * call.grid.y * call.grid.z));
}

void end_between_launches() {
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  recorder->end();
  _exit(0);
}

}  // namespace cudaops
