// A whole program under observation: device time of every launch that was rerouted, and contents of
// memory around the first launch of each configuration of the kernels that are asked for.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device_runtime.h"
#include "clock_reads.h"
#include "report.h"
#include "timer.h"
#ifdef CUDAOPS_CAPTURE_GRAPHS  // of NVIDIA's runtime
#include "graph_nodes.h"
#endif

namespace cudaops_capture {

using cudaops::ArgumentKind;
using cudaops::ArgumentType;

static Variable* variables = nullptr;
Variable::Variable(const char* name, cudaError_t (*locate)(void**), size_t size)
    : name(name), locate(locate), size(size), next(variables), place(nullptr) {
  variables = this;
}

static uintptr_t address_of(const Variable& variable) {
  void* address = variable.place;
  if (address) return (uintptr_t)address;
  return variable.locate(&address) == cudaSuccess ? (uintptr_t)address : 0;
}

// What holds the program's launches, and where it was loaded: of a library, or of a program that may
// lie anywhere, addresses are told from its begin on, as its table of symbols has them.
struct Image {
  std::string file;
  uintptr_t begin = 0;
  Image() {
#ifndef CUDAOPS_CAPTURE_PRELOADED  // which knows functions by numbers
    Dl_info found{};
    static const char anchor = 0;
    if (!dladdr(&anchor, &found) || !found.dli_fbase) return;
    if (((const ElfW(Ehdr)*)found.dli_fbase)->e_type != ET_DYN) return;
    begin = (uintptr_t)found.dli_fbase;
    file = found.dli_fname;
#endif
  }
};

struct Configuration;

// All launches of one kernel.
struct Kernel {
  std::string name;
  unsigned long launches = 0;
  double seconds = 0;                     // of those that were timed, each with its weight
  std::vector<Configuration*> recorded;
  bool told_full = false;
  unsigned long long least_needed = ~0ull;  // bytes, of the configurations that had no room
};

// Launches that differ at most in which allocations of the same sizes they name.
struct Configuration {
  int id = 0;
  Kernel* kernel = nullptr;
  unsigned long long threads = 0;
  unsigned long launches = 0;
  unsigned long first = 0;     // recorded: position among the kernel's launches
  unsigned long followed = 0;  // launches right after one of the same on the same allocations
  unsigned long next_timed = 0, next_wanted = 0;
  double timed = 0, timed_alone = 0;  // launches that the timed ones stand for
  double seconds = 0, seconds_alone = 0;
  bool recorded = false;
  std::string also;  // geometry, sizes of what it reaches, numbers: for `also` lines
  cudaops::TimedLaunches counted;

  // Every launch at first, then about one in `stride`: a few hundred for each doubling. By chance, so
  // that a program's own rhythm is not met. 0: not this one.
  double weight(unsigned long& chance) {
    if (launches < next_timed) return 0;
    constexpr unsigned long each = 256;
    unsigned long stride = launches / each + (launches < each);
    chance = chance * 6364136223846793005ul + 1442695040888963407ul;
    next_timed = launches + 1 + (stride > 1 ? (chance >> 33) % (2 * stride - 1) : 0);
    return (double)stride;
  }

  // Of all launches: those that were not timed, or with the device at rest, count as the others' mean.
  double estimate() const {
    if (timed > 0) return seconds / timed * (double)launches;
    return timed_alone > 0 ? seconds_alone / timed_alone * (double)launches : 0;
  }
};

// A word in the bytes of a structure or variable that is an address in an allocation.
struct Field {
  size_t at;
  uintptr_t address;
  Range range;
};

// Small integers and pairs of numbers are no addresses: asking for each would take too long.
static std::vector<Field> fields_in(const void* data, size_t size, size_t most = 1u << 16) {
  constexpr uintptr_t least = 1ull << 16, beyond = 1ull << 57;
  std::vector<Field> found;
  size_t asked = 0;
  for (size_t i = 0; i + sizeof(uintptr_t) <= size && asked < (1u << 16) && found.size() < most; i += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, (const char*)data + i, sizeof word);
    if (word < least || word >= beyond) continue;
    ++asked;
    Range range = allocation_of(word);
    if (range.size) found.push_back({i, word, range});
  }
  return found;
}

// The allocations that the arguments of one launch point into.
struct Reach {
  std::vector<std::vector<Field>> of;  // for each argument: itself, or what stands in a structure
  std::vector<Range> distinct;         // in order of first mention
  std::vector<bool> holds;             // addresses of others, of each; empty until `follow`
  bool follows = false;                // whether some stand in memory

  explicit Reach(const Call& call) {
    for (int i = 0; i < call.count; ++i) {
      of.push_back(addresses_in(call.types[i], call.values[i]));
      for (const Field& field : of.back())
        if (index(field.range) == distinct.size()) distinct.push_back(field.range);
    }
  }
  static std::vector<Field> addresses_in(const ArgumentType& type, const void* value) {
    if (type.kind == ArgumentKind::Opaque) return fields_in(value, type.size);
    uintptr_t p = type.kind == ArgumentKind::Pointer ? *(const uintptr_t*)value : 0;
    Range range = p ? allocation_of(p) : Range{0, 0};
    return range.size ? std::vector<Field>{{0, p, range}} : std::vector<Field>{};
  }
  // What stands in tables of pointers and structures too, however far that leads. False where there is more
  // of it than is followed.
  bool follow(const Call& call, const Variable* variables) {
    constexpr size_t most_bytes = 256 << 20, most_pointers = 1 << 16, most_ranges = 1 << 14;
    std::vector<cudaops::Holds> what(distinct.size(), cudaops::Holds::Nothing);
    for (int i = 0; i < call.count; ++i)
      if (call.types[i].kind == ArgumentKind::Pointer)
        for (const Field& field : of[(size_t)i])
          what[index(field.range)] = std::max(what[index(field.range)], call.types[i].holds);
    std::vector<char> bytes;
    auto enter = [&](const Range& range, cudaops::Holds held) {
      size_t at = index(range);
      if (at == distinct.size()) distinct.push_back(range), what.push_back(held);
      what[at] = std::max(what[at], held);
      follows = true;
    };
    for (const Variable* v = variables; v; v = v->next) {
      bytes.resize(std::min<size_t>(v->size, 1 << 20));
      if (cudaMemcpy(bytes.data(), (const void*)address_of(*v), bytes.size(), cudaMemcpyDefault) != cudaSuccess) return false;
      for (const Field& field : fields_in(bytes.data(), bytes.size(), most_pointers)) enter(field.range, cudaops::Holds::Nothing);
    }
    for (size_t k = 0; k < distinct.size(); ++k) {
      holds.push_back(false);
      if (what[k] == cudaops::Holds::Nothing) continue;
      if (distinct[k].size > most_bytes || distinct.size() > most_ranges) return false;
      bytes.resize(distinct[k].size);
      if (cudaMemcpy(bytes.data(), (const void*)distinct[k].begin, bytes.size(), cudaMemcpyDefault) != cudaSuccess) return false;
      std::vector<Field> fields = fields_in(bytes.data(), bytes.size(), most_pointers);
      if (fields.size() >= most_pointers) return false;
      auto next = what[k] == cudaops::Holds::Numbers ? cudaops::Holds::Nothing : cudaops::Holds::Anything;
      for (const Field& field : fields) enter(field.range, next);
      holds[k] = !fields.empty();
    }
    return true;
  }
  size_t index(const Range& range) const {
    size_t k = 0;
    while (k < distinct.size() && distinct[k].begin != range.begin) ++k;
    return k;
  }
  // Of the contents before and after: what only pointers to const reach stays as it was.
  size_t bytes(const Call& call) const {
    size_t sum = 0;
    for (size_t k = 0; k < distinct.size(); ++k) {
      bool written = false;
      for (int i = 0; i < call.count; ++i)
        for (const Field& field : of[(size_t)i])
          written |= index(field.range) == k && !call.types[i].pointee_const;
      sum += distinct[k].size * (written ? 2 : 1);
    }
    return sum;
  }
  std::vector<uintptr_t> set() const {
    std::vector<uintptr_t> begins;
    for (auto& range : distinct) begins.push_back(range.begin);
    std::sort(begins.begin(), begins.end());
    return begins;
  }
};

static std::string bytes_of(const void* p, size_t n) { return std::string((const char*)p, n); }
template <class T>
static std::string bytes_of(const T& v) { return bytes_of(&v, sizeof v); }

static std::string key_of(const Call& call, const Reach& reach) {
  const Geometry& g = call.geometry;
  std::string key = bytes_of(call.function) + bytes_of(call.start);
  for (const dim3* d : {&g.grid, &g.block}) key += bytes_of(d->x) + bytes_of(d->y) + bytes_of(d->z);
  key += bytes_of(g.shared_bytes) + call.kernel;
  for (int i = 0; i < call.count; ++i) {
    std::string bytes = bytes_of(call.values[i], call.types[i].size);
    const std::vector<Field>& addresses = reach.of[(size_t)i];
    if (call.types[i].kind == ArgumentKind::Pointer && addresses.empty())
      bytes = *(const uintptr_t*)call.values[i] ? "host" : "null";
    for (const Field& field : addresses) {
      bytes.replace(field.at, sizeof field.address, sizeof field.address, '\0');
      bytes += bytes_of(reach.index(field.range)) + bytes_of(field.range.size) + bytes_of(field.address - field.range.begin);
    }
    key += bytes;
  }
  return key;
}

// What tells a launch from others before the driver is asked what its arguments point into.
static cudaops::Digest fingerprint(const Call& call) {
  const Geometry& g = call.geometry;
  const void* head[] = {call.function, (const void*)call.start, call.kernel};
  const size_t shape[] = {g.grid.x, g.grid.y, g.grid.z, g.block.x, g.block.y, g.block.z, g.shared_bytes, (size_t)call.site};
  cudaops::Digest digest;
  cudaops::digest_bytes(digest, head, sizeof head);
  cudaops::digest_bytes(digest, shape, sizeof shape);
  for (int i = 0; i < call.count; ++i) cudaops::digest_bytes(digest, call.values[i], call.types[i].size);
  return digest;
}

// A launch that was there a moment ago. Memory may be freed and allocated anew at the same place with
// another size: what is known is asked again from time to time.
struct Recent {
  cudaops::Digest digest;
  Configuration* configuration = nullptr;
  std::vector<uintptr_t> set;
  int uses = 0;
};

static bool in_variable(const Variable* all, uintptr_t p) {
  for (const Variable* v = all; v; v = v->next)
    if (uintptr_t begin = address_of(*v))
      if (p >= begin && p - begin < v->size) return true;
  return false;
}

static const char* kind_of(cudaError_t error) {
  if (error == cudaErrorIllegalAddress) return "out_of_bounds";
  return error == cudaErrorLaunchTimeout ? "timeout" : "crash";
}

// Not by the calls that the program's own readings are counted by.
static double monotonic_s() {
  timespec now = {};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

class Recorder {
 public:
  // Before anything of the program runs; the program does not see what was asked for.
  Recorder() : contents_(report_) {
    if (const char* path = option("CUDAOPS_RECORDER_REPORT")) report_.open(path);
    if (!image_.file.empty()) report_.write(line("image\t%s", image_.file.c_str()));
    if (const char* folder = option("CUDAOPS_RECORDER_FOLDER")) contents_.keep_in(folder);
    if (const char* target = option("CUDAOPS_RECORDER_TARGET")) target_ = target;
    if (const char* bytes = option("CUDAOPS_RECORDER_BYTES")) room_ = most_room_ = strtoull(bytes, nullptr, 10);
    if (const char* bytes = option("CUDAOPS_RECORDER_MOST_BYTES")) most_room_ = strtoull(bytes, nullptr, 10);
    if (const char* seconds = option("CUDAOPS_RECORDER_PAUSE_SECONDS")) pause_s_ = atof(seconds);
    if (const char* seconds = option("CUDAOPS_RECORDER_LONG_PAUSE_SECONDS")) long_pause_s_ = atof(seconds);
    if (const char* names = option("CUDAOPS_RECORDER_AWAITED")) {
      std::stringstream list(names);
      for (std::string name; std::getline(list, name, ';');) awaited_.push_back(name);
    }
    if (const char* seconds = option("CUDAOPS_RECORDER_SECONDS"))
      std::thread([this, limit = atof(seconds)] { stop_after(limit); }).detach();
    for (auto name : {"REPORT", "FOLDER", "TARGET", "BYTES", "MOST_BYTES", "SECONDS", "PAUSE_SECONDS", "LONG_PAUSE_SECONDS", "AWAITED"}) unsetenv((std::string("CUDAOPS_RECORDER_") + name).c_str());
  }

  void submit(const Call& call) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!report_.is_open() || ended_) return (void)call.start(call);
    if (stopping_) conclude("stopped\n");
    struct Stamp {
      double& at_s;
      ~Stamp() { at_s = monotonic_s(); }
    } stamp{launched_s_};
    bool in_graph = true, wanted = false;
    Recent* recent = nullptr;
    double weight = 0;
    Timer::Pair pair;
    {
      OwnCalls own;
      in_graph = is_capturing(call.geometry.stream);
      if (!in_graph) {
        recent = &recent_of(call);
        Configuration& c = *recent->configuration;
        if (graphs_ == 0 && wants(c)) {
          Reach reach(call);
          bool whole = reach.follow(call, variables_of(call));
          wanted = has_room(call, c, reach) && cudaDeviceSynchronize() == cudaSuccess;
          if (wanted) lines_ = describe(call, c, reach);
          if (wanted && !whole) lines_ += line("limit\t%d\tmore pointers stand in memory than are followed", c.id);
        }
        weight = wanted ? 1 : c.weight(chance_);
        if (weight > 0) pair = timer_.begin(call.geometry.stream);
        if (pair.start) device_ = pair.device;
      }
    }
    cudaError_t error = call.start(call);
    watch_end();
    if (in_graph) return note_graph(call, error);
    Configuration& c = *recent->configuration;
    if (error == cudaSuccess && weight == 0) return count(c, recent->set);
    OwnCalls own;
    if (error != cudaSuccess) {
      timer_.give_back(pair);
      return refused(call, error);
    }
    timer_.end(pair, call.geometry.stream, &c, wanted, weight);
    if (wanted) keep(call, c);
    count(c, recent->set);
    if (timer_.is_full() && graphs_ == 0 && !own.crowded()) account(timer_.collect(false));
  }

  // The program ends: what is still under way is waited for, and the sums are written.
  void finish() {
    std::lock_guard<std::mutex> hold(lock_);
    if (ended_) return;
    ended_ = true;
    OwnCalls own;
    cudaError_t error = cudaDeviceSynchronize();
    if (is_lost(error)) fault(last(), error);
    account(timer_.collect(true));
    sum_up();
  }

  void graph(int change) {
    std::lock_guard<std::mutex> hold(lock_);
    graphs_ = std::max(0, graphs_ + change);
  }

  cudaError_t reset() {
    std::lock_guard<std::mutex> hold(lock_);
    leave();
    return reset_runtime();
  }

  // What the device holds of ours is about to go.
  void leave_context() {
    std::lock_guard<std::mutex> hold(lock_);
    leave();
  }

  void stirred() {
    std::unique_lock<std::mutex> hold(lock_, std::try_to_lock);
    if (hold) launched_s_ = monotonic_s();
  }

  void note(const std::string& lines) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!ended_) report_.write(lines);
    watch_end();
  }

  static Recorder* the() {
    static Recorder* recorder = new Recorder;  // outlives every destructor that may launch
    return recorder;
  }

 private:
  static constexpr size_t most_recorded = 8;  // configurations of one kernel
  static constexpr size_t most_also = 2048;
  static constexpr int asked_again = 64;      // launches of one kind, before its memory is looked up anew
  static constexpr int most_refusals = 100;   // that are reported

  // Registered after what the runtime registers for itself, it runs before that.
  void watch_end() {
    if (!watching_) watching_ = atexit([] { the()->finish(); }) == 0;
  }

  void leave() {
    if (!report_.is_open() || ended_) return;
    OwnCalls own;
    account(timer_.collect(true));
    timer_.forget();
    contents_.forget();
    for (Recent& recent : recent_) recent = Recent{};
    previous_ = nullptr;
  }

  // A program that takes longer ends here, and so does one that has launched and then nothing for a
  // while: as far as it came, if it launched anything. One that does nothing but launch has the lock nearly always: then its own thread ends it, at its next launch. A launch
  // that is being stored is waited for, any other call for as long as a long launch may take on a GPU
  // that others use too.
  void stop_after(double seconds) {
    const double end = monotonic_s() + seconds;
    for (double left = seconds; left > 0; left = end - monotonic_s()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.1)));
      if (pauses()) return;
    }
    constexpr auto look = std::chrono::milliseconds(50), most = look * 100;
    stopping_ = true;
    std::unique_lock<std::mutex> hold(lock_, std::defer_lock);
    for (auto waited = 0 * look; !hold.try_lock(); waited = storing_ ? 0 * look : waited + look) {
      if (waited >= most) overdue("launch");
      std::this_thread::sleep_for(look);
    }
    if (!ended_) conclude("stopped\n");
  }

  // Ends the program if it has launched nothing for long enough, and the device has been idle for as
  // long; whether it has ended by itself. As long as kernels are awaited the pause is the long one.
  bool pauses() {
    std::unique_lock<std::mutex> hold(lock_, std::try_to_lock);
    if (!hold) return false;
    if (ended_) return true;
    const bool all = std::all_of(awaited_.begin(), awaited_.end(), [this](auto& name) { return kernels_.count(name); });
    const double most = all ? pause_s_ : long_pause_s_;  // 0: however long
    if (configurations_.empty() || graphs_ || most <= 0 || monotonic_s() - launched_s_ < most) return false;
    OwnCalls own;
    const double asked = monotonic_s();
    account(timer_.collect(true));
    if (cudaSetDevice(device_) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return false;
    if (monotonic_s() - asked < 0.1) conclude("paused\n");
    launched_s_ = monotonic_s();  // it was at work until now
    return false;
  }

  // With the lock held. What is under way on the device is left.
  [[noreturn]] void conclude(const char* why) {
    if (configurations_.empty()) overdue("idle");
    ended_ = true;
    OwnCalls own;
    account(timer_.collect(false));
    report_.write(why);
    sum_up();
    fflush(nullptr);
    _Exit(0);
  }

  [[noreturn]] void overdue(const char* when) {
    report_.write(line("overdue\t%s", when));
    _Exit(0);
  }

  void sum_up() {
    struct Total {
      double seconds = 0, counted_seconds = 0;
      unsigned long counted = 0;
    };
    std::map<std::string, Total> totals;
    std::string lines;
    for (auto& [key, c] : configurations_) {
      Total& total = totals[c.kernel->name];
      unsigned long counted = c.counted.count();
      total.seconds += c.estimate();
      total.counted += counted;
      if (counted) total.counted_seconds += c.estimate() / (double)c.launches * (double)counted;
      if (c.recorded)  // of the others nobody asks
        lines += line("usage\t%d\t%lu\t%.9g\t1\t%lu\t%lu", c.id, c.launches, c.estimate(), c.first, c.followed) +
                 line("timed\t%d\t%lu", c.id, counted);
      else if (c.launches && !c.also.empty())
        lines += "also\t" + c.kernel->name + "\t" + c.also + "\n";
    }
    for (auto& [name, kernel] : kernels_) {
      if (!kernel.launches) continue;
      const Total& total = totals[name];
      lines += line("count\t%s\t%lu\t0\t%.9g", name.c_str(), kernel.launches, total.seconds) +
               line("ktimed\t%s\t%lu\t%.9g", name.c_str(), total.counted, total.counted_seconds);
      if (kernel.told_full && kernel.recorded.empty()) lines += line("needs\t%s\t%llu", name.c_str(), kernel.least_needed);
    }
    report_.write(lines + "end\n");
  }

  // What is known of such a launch, asked anew where it is none of the recent ones.
  Recent& recent_of(const Call& call) {
    cudaops::Digest digest = fingerprint(call);
    Recent& recent = recent_[digest.a % (sizeof recent_ / sizeof *recent_)];
    if (recent.configuration && recent.digest == digest && ++recent.uses < asked_again) return recent;
    Reach reach(call);
    recent = Recent{digest, &configuration(call, reach), reach.set(), 0};
    return recent;
  }

  Configuration& configuration(const Call& call, const Reach& reach) {
    Configuration& c = configurations_[key_of(call, reach)];
    if (!c.kernel) {
      const Geometry& g = call.geometry;
      c.id = (int)configurations_.size() - 1;
      c.kernel = &kernels_[call.kernel];
      c.kernel->name = call.kernel;
      c.threads = (unsigned long long)g.grid.x * g.grid.y * g.grid.z * g.block.x * g.block.y * g.block.z;
      if (configurations_.size() <= most_also) c.also = numbers_of(call, reach);
    }
    return c;
  }

  // What is told of a launch whose contents are not kept.
  static std::string numbers_of(const Call& call, const Reach& reach) {
    const Geometry& g = call.geometry;
    std::string text;
    for (size_t n : {(size_t)g.grid.x, (size_t)g.grid.y, (size_t)g.grid.z, (size_t)g.block.x, (size_t)g.block.y,
                     (size_t)g.block.z, (size_t)g.shared_bytes})
      text += std::to_string(n) + "\t";
    for (const Range& range : reach.distinct) text += std::to_string(range.size) + ",";
    text += "\t";
    for (int i = 0; i < call.count; ++i)
      if (call.types[i].kind == ArgumentKind::Scalar)
        text += std::to_string(i) + ":" + call.types[i].element + ":" + hex_of(call.values[i], call.types[i].size) + ";";
    return text;
  }

  static std::string hex_of(const void* value, unsigned size) {
    std::string hex;
    for (unsigned k = 0; k < size; ++k) {
      char two[3];
      snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(value)[k]);
      hex += two;
    }
    return hex;
  }

  // A kernel's first configurations, and later ones that are clearly larger. One that had no room is
  // thought of again after so many launches.
  bool wants(const Configuration& c) {
    Kernel& kernel = *c.kernel;
    bool possible = contents_.is_on() && !c.recorded && (target_.empty() || target_ == kernel.name);
    if (!possible || c.launches < c.next_wanted) return false;
    replaced_ = nullptr;
    if (kernel.recorded.size() < most_recorded) return true;
    auto smaller = [](const Configuration* a, const Configuration* b) { return a->threads < b->threads; };
    replaced_ = *std::min_element(kernel.recorded.begin(), kernel.recorded.end(), smaller);
    return c.threads > replaced_->threads + replaced_->threads / 2;
  }

  // What needs more room than every kernel is given has it where its kernel takes the most time so far.
  bool has_room(const Call& call, Configuration& c, const Reach& reach) {
    unsigned long long own = reach.bytes(call), needed = contents_.written() + own;
    if (needed <= room_ || (needed <= most_room_ && c.launches && is_dearest(*c.kernel))) return true;
    c.next_wanted = std::max(1ul, 2 * c.launches);
    c.kernel->least_needed = std::min(c.kernel->least_needed, own);
    if (!c.kernel->told_full) report_.write(line("full\t%s", call.kernel));
    c.kernel->told_full = true;
    return false;
  }

  bool is_dearest(const Kernel& kernel) {
    account(timer_.collect(true));
    for (auto& [name, other] : kernels_)
      if (other.seconds > kernel.seconds) return false;
    return true;
  }

  // What stands in memory before the launch; written to the report only once it has run.
  std::string describe(const Call& call, const Configuration& c, const Reach& reach) {
    const Geometry& g = call.geometry;
    std::string lines = line("config\t%d\t%s\t%d\t%llx\t%u\t%u\t%u\t%u\t%u\t%u\t%zu\t%s", c.id, call.kernel,
                             call.site, place_of(call.function), g.grid.x, g.grid.y, g.grid.z,
                             g.block.x, g.block.y, g.block.z, g.shared_bytes, call.within ? call.within : "");
    if (call.limit) lines += line("limit\t%d\t%s", c.id, call.limit);
    for (int i = 0; i < call.count; ++i) lines += describe_argument(c.id, i, call, reach);
    kept_ = reach.distinct;
    for (size_t k = 0; k < kept_.size(); ++k) {
      lines += stored("before", c.id, std::to_string(k), kept_[k], true);
      if (reach.follows)
        lines += line("place\t%d\t%zu\t%llu\t%d", c.id, k, (unsigned long long)kept_[k].begin, (int)reach.holds[k]);
    }
    for (const Variable* v = variables_of(call); v; v = v->next) {
      lines += stored("gbefore", c.id, v->name, Range{address_of(*v), v->size}, true);
    }
    return lines;
  }

  static const Variable* variables_of(const Call& call) { return call.variables ? call.variables : variables; }

  unsigned long long place_of(const void* function) const {
    return function ? (uintptr_t)function - image_.begin : 0;
  }

  std::string describe_argument(int id, int i, const Call& call, const Reach& reach) {
    const ArgumentType& type = call.types[i];
    const void* value = call.values[i];
    if (type.kind == ArgumentKind::Pointer) return describe_pointer(id, i, call, reach);
    std::string hex = hex_of(value, type.size);
    std::string place = "\t" + std::to_string(id) + "\t" + std::to_string(i);
    if (type.kind == ArgumentKind::Scalar) return "arg" + place + "\tscalar\t" + type.element + "\t" + hex + "\n";
    std::string lines = "arg" + place + "\topaque\t" + (type.written ? type.written() : type.element) + "\t" + hex + "\n";
    for (const Field& field : reach.of[(size_t)i])
      lines += line("field\t%d\t%d\t%zu\t%zu\t%lld", id, i, field.at, reach.index(field.range),
                    (long long)(field.address - field.range.begin));
    return lines;
  }

  std::string describe_pointer(int id, int i, const Call& call, const Reach& reach) {
    const ArgumentType& type = call.types[i];
    const uintptr_t p = *(const uintptr_t*)call.values[i];
    if (!p) return line("arg\t%d\t%d\tnull", id, i);
    if (in_variable(variables_of(call), p)) return line("limit\t%d\tparameter @N%d@ points into a __device__ variable", id, i);
    if (reach.of[(size_t)i].empty()) {
      const char* elsewhere = reachable_elsewhere(p);
      return elsewhere ? line("limit\t%d\tparameter @N%d@ points to %s", id, i, elsewhere) : line("host\t%d\t%d", id, i);
    }
    const Range& range = reach.of[(size_t)i].front().range;
    bool is_lost = type.pointee_pointer && !reach.holds[reach.index(range)];
    std::string limit = is_lost ? line("limit\t%d\tparameter @N%d@ points to pointers to memory that is not an allocation", id, i) : "";
    return limit + line("arg\t%d\t%d\tpointer\t%s\t%d\t%zu\t%lld", id, i, type.element, (int)type.pointee_const,
                        reach.index(range), (long long)(p - range.begin));
  }

  std::string stored(const char* verb, int id, const std::string& name, const Range& range, bool with_size) {
    cudaError_t error = cudaSuccess;
    storing_ = true;
    std::string file = contents_.store(range.begin, range.size, error);
    storing_ = false;
    if (file.empty())
      return line("limit\t%d\tmemory that it reaches cannot be read: %s", id, cudaGetErrorString(error));
    std::string size = with_size ? "\t" + std::to_string(range.size) : "";
    return line("%s\t%d\t%s%s\t%s", verb, id, name.c_str(), size.c_str(), file.c_str());
  }

  // The recorded launch has been started: what it leaves is kept too.
  void keep(const Call& call, Configuration& c) {
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) return fault(call.kernel, error);
    for (size_t k = 0; k < kept_.size(); ++k) lines_ += stored("after", c.id, std::to_string(k), kept_[k], false);
    for (const Variable* v = variables_of(call); v; v = v->next)
      lines_ += stored("gafter", c.id, v->name, Range{address_of(*v), v->size}, false);
    report_.write(lines_);
    std::vector<Configuration*>& recorded = c.kernel->recorded;
    if (replaced_) {
      replaced_->recorded = false;
      recorded.erase(std::find(recorded.begin(), recorded.end(), replaced_));
    }
    recorded.push_back(&c);
    c.recorded = true;
    c.first = c.kernel->launches;
  }

  void count(Configuration& c, const std::vector<uintptr_t>& set) {
    if (previous_ == &c && previous_set_ == set) ++c.followed;
    else previous_ = &c, previous_set_ = set;
    ++c.launches;
    c.counted.launched();
    ++c.kernel->launches;
    last_ = &c;
  }

  std::string last() const { return last_ ? last_->kernel->name : std::string(); }

  void account(const std::vector<Spent>& all) {
    for (auto& spent : all) {
      Configuration& c = *spent.configuration;
      if (spent.alone) c.timed_alone += 1, c.seconds_alone += spent.seconds;
      else c.timed += spent.weight, c.seconds += spent.weight * spent.seconds;
      c.kernel->seconds += spent.weight * spent.seconds;
    }
  }

  void refused(const Call& call, cudaError_t error) {
    if (is_lost(error)) return fault(last_ ? last() : call.kernel, error);
    if (++refusals_ > most_refusals) return;
    const Geometry& g = call.geometry;
    report_.write(line("refused\t%s\t%d\tgrid (%u,%u,%u), block (%u,%u,%u), %zu bytes of dynamic shared memory: %s",
                       call.kernel, call.site, g.grid.x, g.grid.y, g.grid.z, g.block.x, g.block.y, g.block.z,
                       g.shared_bytes, cudaGetErrorString(error)));
  }

  void note_graph(const Call& call, cudaError_t error) {
    previous_ = nullptr;
#ifdef CUDAOPS_CAPTURE_GRAPHS
    OwnCalls own;
    if (error == cudaSuccess) graphs().captured(call);
#endif
    if (in_graphs_.insert(call.kernel).second) report_.write(line("graph\t%s\t%d", call.kernel, call.site));
  }

  // Told once: whatever runs afterwards fails for the same reason.
  void fault(const std::string& kernel, cudaError_t error) {
    if (faulted_) return;
    faulted_ = true;
    report_.write(line("fault\t%s\t0\t%s\t%s (%s)", kind_of(error), kernel.c_str(), cudaGetErrorString(error),
                       cudaGetErrorName(error)));
  }

  std::mutex lock_;
  double pause_s_ = 0, long_pause_s_ = 0;
  std::vector<std::string> awaited_;
  double launched_s_ = 0;          // when the last launch was under way and recorded
  int device_ = 0;                 // of the last that was timed
  Report report_;
  Image image_;
  Contents contents_;
  Timer timer_;
  std::string target_, lines_;
  std::map<std::string, Configuration> configurations_;
  std::map<std::string, Kernel> kernels_;
  Recent recent_[64];
  std::set<std::string> in_graphs_;
  std::vector<Range> kept_;
  Configuration *previous_ = nullptr, *replaced_ = nullptr, *last_ = nullptr;
  std::vector<uintptr_t> previous_set_;
  unsigned long long room_ = 2ull << 30, most_room_ = 2ull << 30;
  unsigned long chance_ = 1;
  int refusals_ = 0;
  int graphs_ = 0;  // being recorded now
  std::atomic<bool> storing_{false}, stopping_{false};
  bool watching_ = false, ended_ = false, faulted_ = false;
};

#ifndef CUDAOPS_CAPTURE_PRELOADED  // into programs too that launch nothing
__attribute__((constructor(102))) static void begin() { Recorder::the(); }
#endif

#ifndef CUDAOPS_CAPTURE_GRAPHS
void submit(const Call& call) { Recorder::the()->submit(call); }
#else
void submit(const Call& call) {
  if (!Graphs::wanted()) return Recorder::the()->submit(call);
  if (Held::can_hold(call)) *Graphs::wanted() = std::make_shared<Held>(call);
}
#endif
void graph_begins() { Recorder::the()->graph(+1); }
void graph_ends() { Recorder::the()->graph(-1); }
cudaError_t reset_device() { return Recorder::the()->reset(); }
void leave_context() { Recorder::the()->leave_context(); }
void stirred() { Recorder::the()->stirred(); }
void note(const std::string& lines) { Recorder::the()->note(lines); }

}  // namespace cudaops_capture
