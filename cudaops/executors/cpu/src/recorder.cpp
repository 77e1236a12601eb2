// A whole program under observation: times of its kernels, contents around the first launch of each
// configuration, and proofs that a repeated launch changes nothing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cudaops/clock_reads.h"
#include "digest.h"
#include "machine.h"

namespace cudaops {

extern double skipped_seconds;
bool any_registered();

// One set of arguments, compared byte for byte.
struct Repeat {
  uint64_t fixed_at = 0;       // generation of memory in which a launch changed nothing; 0: none
  Digest host_visible;         // managed and pinned contents then
  unsigned seen = 0, failed = 0, wait = 0;
};

// Launches that differ at most in which allocations of the same sizes they name.
struct Configuration {
  int id = 0;
  std::string kernel;
  unsigned long long threads = 0;
  unsigned long launches = 0, ran = 0;
  unsigned long first = 0;     // recorded: position among the kernel's launches
  unsigned long followed = 0;  // launches right after one of the same on the same allocations
  double seconds = 0;  // of launches that ran, scaled to all of their blocks
  double spent = 0;    // really
  bool recorded = false;
  std::string also;    // geometry, sizes of what it reaches, numbers: for `also` lines
  TimedLaunches timed;
};

struct Totals {
  unsigned long launches = 0, skipped = 0;
  double seconds = 0;
  bool cut = false;  // not every block of every launch was executed
  unsigned long timed = 0;
  double timed_seconds = 0;
};

static std::string bytes_of(const void* p, size_t n) { return std::string((const char*)p, n); }
template <class T>
static std::string bytes_of(const T& v) { return bytes_of(&v, sizeof v); }

static std::string identity(const Call& call) {
  return bytes_of(call.function) + bytes_of(call.invoke) + bytes_of(call.grid) + bytes_of(call.block) +
         bytes_of(call.shared_bytes) + call.kernel;
}

static bool in_global(uintptr_t p) {
  for (GlobalVariable* v = global_variables; v; v = v->next)
    if (p >= (uintptr_t)v->address && p < (uintptr_t)v->address + v->size) return true;
  return false;
}

// A word in the bytes of a structure or variable that is an address in an allocation.
struct Field {
  size_t at;
  uintptr_t address;
  const Allocation* allocation;
};

static std::vector<Field> fields_in(const void* data, size_t size) {
  std::vector<Field> found;
  for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, (const char*)data + i, sizeof word);
    const Allocation* a = allocation_around(word);
    if (a && word >= a->begin && word <= a->begin + a->size) found.push_back({i, word, a});
  }
  return found;
}

// What a launch can reach: what its arguments hand over, then what stands in that.
struct Reached {
  std::vector<const Allocation*> all;
  std::vector<bool> holds;  // addresses of others among them
  bool any = false;
};

// The addresses that an argument hands over: itself, or what stands in a structure.
static std::vector<Field> addresses_in(const ArgumentType& type, const void* value) {
  if (type.kind == ArgumentKind::Opaque) return fields_in(value, type.size);
  if (type.kind != ArgumentKind::Pointer) return {};
  uintptr_t p = *(const uintptr_t*)value;
  const Allocation* a = p ? allocation_around(p) : nullptr;
  return a ? std::vector<Field>{{0, p, a}} : std::vector<Field>{};
}

static Digest digest_memory(bool host_visible_only) {
  Digest d;
  for (auto& a : allocations)
    if (!host_visible_only || a.kind != Memory::Device) digest_bytes(d, (const void*)a.begin, a.size);
  if (!host_visible_only)
    for (GlobalVariable* v = global_variables; v; v = v->next) digest_bytes(d, v->address, v->size);
  return d;
}

class ProgramRecorder : public Recorder {
 public:
  ProgramRecorder() {
    if (const char* folder = option("CUDAOPS_CAPTURE")) folder_ = folder;
    if (const char* target = option("CUDAOPS_TARGET")) target_ = target;
    if (const char* name = option("CUDAOPS_IDEMPOTENT")) idempotent_ = name;
    if (const char* bytes = option("CUDAOPS_CAPTURE_BYTES")) room_ = strtoull(bytes, nullptr, 10);
    if (const char* limit = option("CUDAOPS_STOP_SECONDS")) stop_s_ = atof(limit);
    if (const char* limit = option("CUDAOPS_TIMED_SECONDS")) timed_s_ = stop_s_ = atof(limit);
    if (const char* limit = option("CUDAOPS_LAUNCH_SECONDS")) launch_s_ = atof(limit);
    begun_ = now();
    if (const char* limit = option("CUDAOPS_WHOLE_SECONDS")) whole_until_ = begun_ + atof(limit);
    if (stop_s_) std::thread([this] { watch(); }).detach();
  }

  bool skip(const Call& call) override {
    if (timed_s_ && !has_launched_) begin_launches();
    exact_ = identity(call);
    for (int i = 0; i < call.count; ++i) exact_ += bytes_of(call.values[i], call.types[i].size);
    Repeat& repeat = repeats_[exact_];
    ++repeat.seen;
    bool fixed = repeat.fixed_at == generation() && !any_registered() &&
                 (!host_visible() || digest_memory(true) == repeat.host_visible);
    if (!fixed && (!timed_s_ || now() < whole_until_)) return false;
    Configuration& c = configuration(call);
    bool cut = !fixed && c.spent >= share_of_time() / 3;  // a first launch may take all of it
    if (!fixed && !cut) return false;
    double mean = c.ran ? c.seconds / (double)c.ran : 0;
    count(call, c);
    Totals& t = totals_[call.kernel];
    ++t.launches, ++t.skipped;
    t.seconds += mean;
    t.cut |= cut;
    skipped_seconds += mean;
    return true;
  }

  // Of a run of which only times are wanted, no configuration takes more than its share, once that
  // for which everything is executed is over.
  double deadline(const Call&) override {
    return timed_s_ ? std::max(whole_until_.load(), now() + std::max(share_of_time() - current_->spent, 0.05)) : 0;
  }

  void before(const Call& call) override {
    last_end_ = never;
    running_ = call.kernel;
    current_ = &configuration(call);
    recording_ = wants(call, *current_);
    if (recording_) describe(call, *current_);
    proving_ = worth_proving(repeats_[exact_]);
    if (proving_) {
      if (digest_at_ != generation() || host_visible()) digest_ = digest_memory(false);
    }
  }

  void after(const Call& call, double spent, double ran) override {
    double seconds = ran > 0 ? spent / ran : 0;
    bool printed = printed_in_kernel();
    Repeat& repeat = repeats_[exact_];
    Digest then;
    if (proving_) then = digest_memory(false);
    bool fixed = proving_ && !printed && then == digest_;
    if (!fixed) touch();
    if (fixed || (!printed && ran >= 1 && is_idempotent(call))) {
      repeat.fixed_at = generation();
      repeat.host_visible = digest_memory(true);
    } else if (proving_) {
      repeat.wait = 1u << std::min(++repeat.failed, 10u);
    }
    if (proving_) digest_ = then, digest_at_ = generation();
    if (recording_) store_after(call, *current_);
    if (recording_) current_->first = totals_[call.kernel].launches;
    count(call, *current_);
    ++current_->ran;
    current_->seconds += seconds;
    current_->spent += spent;
    Totals& t = totals_[call.kernel];
    ++t.launches;
    t.seconds += seconds;
    t.cut |= ran < 1;
    last_seconds_[exact_] = seconds;
    last_end_ = now();
    running_ = nullptr;
  }

  bool forgives() override {
    return timed_s_ && std::any_of(totals_.begin(), totals_.end(), [](auto& each) { return each.second.cut; });
  }

  void end() override {
    report("stopped");
    finish();
  }

  void finish() {
    for (auto& [key, c] : configurations_)
      report("usage\t%d\t%lu\t%.9g\t%d\t%lu\t%lu", c.id, c.launches,
             c.ran ? c.seconds / (double)c.ran * (double)c.launches : 0.0, (int)c.recorded, c.first, c.followed);
    for (auto& [key, c] : configurations_)
      if (c.launches && !c.recorded && !c.also.empty()) report("also\t%s\t%s", c.kernel.c_str(), c.also.c_str());
    for (auto& [key, c] : configurations_) {
      unsigned long timed = c.timed.count();
      if (c.recorded) report("timed\t%d\t%lu", c.id, timed);
      Totals& t = totals_[c.kernel];
      t.timed += timed;
      if (c.ran) t.timed_seconds += c.seconds / (double)c.ran * (double)timed;
    }
    for (auto& [kernel, t] : totals_) {
      report("ktimed\t%s\t%lu\t%.9g", kernel.c_str(), t.timed, t.timed_seconds);
      if (t.cut) report("cut\t%s", kernel.c_str());
    }
    for (auto& [kernel, t] : totals_)
      report("count\t%s\t%lu\t%lu\t%.9g", kernel.c_str(), t.launches, t.skipped, t.seconds);
    report("end");
  }

 private:
  static constexpr int most_recorded = 8;  // configurations of one kernel
  static constexpr size_t most_also = 2048;

  static constexpr double never = 1e300;

  double share_of_time() const { return timed_s_ / 8; }

  // Of a run of which only times are wanted: what the host prepares is not of its time.
  void begin_launches() {
    double time = now();
    whole_until_ = whole_until_ + (time - begun_);
    begun_ = time;
    has_launched_ = true;
  }

  // Ends a run after its time; one of which only times are wanted, where the host has been at work for
  // a while since a launch that was recorded, as where it checks results.
  void watch() {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      double time = now(), last = last_end_;
      bool pauses = timed_s_ && time > whole_until_ && any_recorded_ && time - last > share_of_time();
      double limit = timed_s_ && !has_launched_ ? std::max(stop_s_, launch_s_) : stop_s_;
      if (!pauses && time - begun_ <= limit) continue;
      if (const char* kernel = running_) report("running\t%s", kernel);  // in case it does not end
      end_between_launches();
    }
  }

  void count(const Call& call, Configuration& c) {
    std::vector<const Allocation*> reached = reach(call);
    std::vector<uintptr_t> set;
    for (auto* a : reached) set.push_back(a->begin);
    if (previous_ == &c && previous_set_ == set) ++c.followed;
    previous_ = &c;
    previous_set_ = std::move(set);
    ++c.launches;
    c.timed.launched();
  }

  bool host_visible() const {
    for (auto& a : allocations)
      if (a.kind != Memory::Device) return true;
    return false;
  }

  // Of a kernel that reads nothing of what it writes, which its parameters tell apart: the same launch
  // again writes the same, so none has to be made to prove it.
  bool is_idempotent(const Call& call) const {
    if (idempotent_ != call.kernel || any_registered()) return false;
    size_t pointers = 0;
    for (int i = 0; i < call.count; ++i) {
      std::vector<Field> addresses = addresses_in(call.types[i], call.values[i]);
      if (call.types[i].kind != ArgumentKind::Pointer && !addresses.empty()) return false;
      pointers += addresses.size();
    }
    return reach(call).size() == pointers;
  }

  // A proof costs two passes over memory; a launch that is cheaper than that is simply repeated,
  // and one that failed waits longer each time.
  bool worth_proving(Repeat& repeat) {
    if (repeat.seen < 2 || any_registered()) return false;
    if (repeat.wait) return --repeat.wait, false;
    size_t bytes = 0;
    for (auto& a : allocations) bytes += a.size;
    double cost = 2.0 * (double)bytes / 4e9;
    return last_seconds_[exact_] * 4 > cost;
  }

  Configuration& configuration(const Call& call) {
    std::string key = identity(call);
    std::vector<uintptr_t> order;
    for (int i = 0; i < call.count; ++i) {
      std::string bytes = bytes_of(call.values[i], call.types[i].size);
      std::vector<Field> addresses = addresses_in(call.types[i], call.values[i]);
      if (call.types[i].kind == ArgumentKind::Pointer && !call.types[i].function && addresses.empty())
        bytes = *(const uintptr_t*)call.values[i] ? "host" : "null";
      for (const Field& field : addresses) {
        auto at = std::find(order.begin(), order.end(), field.allocation->begin) - order.begin();
        if (at == (long)order.size()) order.push_back(field.allocation->begin);
        bytes.replace(field.at, sizeof field.address, sizeof field.address, '\0');
        bytes += bytes_of(at) + bytes_of(field.allocation->size) + bytes_of(field.address - field.allocation->begin);
      }
      key += bytes;
    }
    Configuration& c = configurations_[key];
    if (c.kernel.empty()) {
      c.id = (int)configurations_.size() - 1;
      c.kernel = call.kernel;
      c.threads = (unsigned long long)call.grid.x * call.grid.y * call.grid.z * call.block.x * call.block.y * call.block.z;
      if (configurations_.size() <= most_also) c.also = numbers_of(call);
    }
    return c;
  }

  // What is told of a launch whose contents are not kept.
  std::string numbers_of(const Call& call) {
    char head[160];
    snprintf(head, sizeof head, "%u\t%u\t%u\t%u\t%u\t%u\t%zu\t", call.grid.x, call.grid.y, call.grid.z, call.block.x,
             call.block.y, call.block.z, call.shared_bytes);
    std::string text = head;
    for (const Allocation* a : reach(call)) text += std::to_string(a->size) + ",";
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
      snprintf(two, sizeof two, "%02x", ((const unsigned char*)value)[k]);
      hex += two;
    }
    return hex;
  }

  bool wants(const Call& call, Configuration& c) {
    if (folder_.empty() || c.recorded || (!target_.empty() && target_ != call.kernel)) return false;
    Configuration* least = nullptr;
    int recorded = 0;
    for (auto& [key, other] : configurations_)
      if (other.recorded && other.kernel == c.kernel) {
        ++recorded;
        if (!least || other.threads < least->threads) least = &other;
      }
    if (recorded >= most_recorded && c.threads <= least->threads + least->threads / 2) return false;
    reached_ = reach_through(call);
    size_t bytes = 0;
    for (auto* a : reached_.all) bytes += 2 * a->size;
    if (written_ + bytes > room_) {
      report("full\t%s", call.kernel);
      return false;
    }
    if (recorded >= most_recorded) least->recorded = false;
    c.recorded = true;
    any_recorded_ = true;
    return true;
  }

  std::vector<const Allocation*> reach(const Call& call) const {
    std::vector<const Allocation*> found;
    for (int i = 0; i < call.count; ++i)
      for (const Field& field : addresses_in(call.types[i], call.values[i]))
        if (std::find(found.begin(), found.end(), field.allocation) == found.end()) found.push_back(field.allocation);
    return found;
  }

  // With what stands in structures, tables of pointers and variables, however far that leads.
  Reached reach_through(const Call& call) {
    Reached found;
    found.all = reach(call);
    std::vector<Holds> holds(found.all.size(), Holds::Nothing);
    auto enter = [&](const Allocation* a, Holds what) {
      size_t at = std::find(found.all.begin(), found.all.end(), a) - found.all.begin();
      if (at == found.all.size()) found.all.push_back(a), holds.push_back(Holds::Nothing);
      holds[at] = std::max(holds[at], what);
    };
    for (int i = 0; i < call.count; ++i)
      if (call.types[i].kind == ArgumentKind::Pointer)
        for (const Field& field : addresses_in(call.types[i], call.values[i])) enter(field.allocation, call.types[i].holds);
    for (GlobalVariable* v = global_variables; v; v = v->next)
      for (const Field& field : fields_in(v->address, v->size)) enter(field.allocation, Holds::Nothing), found.any = true;
    for (size_t k = 0; k < found.all.size(); ++k) {
      found.holds.push_back(false);
      if (holds[k] == Holds::Nothing) continue;
      for (const Field& field : fields_in((const void*)found.all[k]->begin, found.all[k]->size)) {
        enter(field.allocation, holds[k] == Holds::Numbers ? Holds::Nothing : Holds::Anything);
        found.holds[k] = found.any = true;
      }
    }
    return found;
  }

  std::string store(const void* data, size_t size) {
    Digest d;
    digest_bytes(d, data, size);
    char name[64];
    snprintf(name, sizeof name, "%016llx%016llx-%zu", (unsigned long long)d.a, (unsigned long long)d.b, size);
    std::string path = folder_ + "/" + name, part = path + ".part";
    struct stat known {};
    if (stat(path.c_str(), &known) == 0) return name;
    int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) stop("infrastructure", nullptr, "cannot write the capture: %s", strerror(errno));
    for (size_t done = 0; done < size;) {
      ssize_t n = write(fd, (const char*)data + done, size - done);
      if (n <= 0) stop("infrastructure", nullptr, "cannot write the capture: %s", strerror(errno));
      done += (size_t)n;
    }
    close(fd);
    rename(part.c_str(), path.c_str());
    written_ += size;
    return name;
  }

  void describe(const Call& call, Configuration& c) {
    report("config\t%d\t%s\t%d\t%llx\t%u\t%u\t%u\t%u\t%u\t%u\t%zu\t%s", c.id, call.kernel, call.site,
           (unsigned long long)(uintptr_t)call.function, call.grid.x, call.grid.y, call.grid.z, call.block.x,
           call.block.y, call.block.z, call.shared_bytes, call.within ? call.within : "");
    if (call.limit) report("limit\t%d\t%s", c.id, call.limit);
    tell_what_leads_elsewhere(call, c);
    const std::vector<const Allocation*>& reachable = reached_.all;
    for (int i = 0; i < call.count; ++i) describe_argument(c.id, i, call.types[i], call.values[i], reachable);
    for (size_t k = 0; k < reachable.size(); ++k) {
      const Allocation& a = *reachable[k];
      report("before\t%d\t%zu\t%zu\t%s", c.id, k, a.size, store((const void*)a.begin, a.size).c_str());
      if (reached_.any) report("place\t%d\t%zu\t%llu\t%d", c.id, k, (unsigned long long)a.begin, (int)reached_.holds[k]);
    }
    for (GlobalVariable* v = global_variables; v; v = v->next) {
      report("gbefore\t%d\t%s\t%zu\t%s", c.id, v->name, v->size, store(portable(*v).data(), v->size).c_str());
    }
  }

  void describe_argument(int id, int i, const ArgumentType& type, const void* value,
                         const std::vector<const Allocation*>& reachable) {
    if (type.kind == ArgumentKind::Pointer) {
      uintptr_t p = *(const uintptr_t*)value;
      if (!p) return report("arg\t%d\t%d\tnull", id, i);
      const Allocation* a = allocation_around(p);
      if (uint64_t token = type.function ? function_token(p) : 0)
        return report("arg\t%d\t%d\topaque\t%s\t%s", id, i, type.function(), hex_of(&token, sizeof token).c_str());
      if (!a && in_global(p)) return report("limit\t%d\tparameter @N%d@ points into a __device__ variable", id, i);
      if (!a && any_registered()) return report("limit\t%d\tparameter @N%d@ points to registered host memory", id, i);
      if (!a) return report("host\t%d\t%d", id, i);
      auto at = std::find(reachable.begin(), reachable.end(), a) - reachable.begin();
      return report("arg\t%d\t%d\tpointer\t%s\t%d\t%ld\t%lld", id, i, type.element, (int)type.pointee_const, (long)at,
                    (long long)p - (long long)a->begin);
    }
    std::string hex = hex_of(value, type.size);
    if (type.kind == ArgumentKind::Scalar) return report("arg\t%d\t%d\tscalar\t%s\t%s", id, i, type.element, hex.c_str());
    report("arg\t%d\t%d\topaque\t%s\t%s", id, i, type.written(), hex.c_str());
    for (const Field& field : addresses_in(type, value)) {
      auto at = std::find(reachable.begin(), reachable.end(), field.allocation) - reachable.begin();
      report("field\t%d\t%d\t%zu\t%ld\t%lld", id, i, field.at, (long)at,
             (long long)field.address - (long long)field.allocation->begin);
    }
  }

  // Whether a table of pointers holds one that is no device's.
  bool leads_elsewhere(const ArgumentType& type, const void* value) {
    for (const Field& field : addresses_in(type, value))
      for (size_t i = 0; i + sizeof(uintptr_t) <= field.allocation->size; i += sizeof(uintptr_t)) {
        uintptr_t word = *(const uintptr_t*)(field.allocation->begin + i);
        bool is_address = word >= 1 << 16 && word >> 47 == 0;  // of a user's process (x86-64, aarch64)
        if (is_address && !allocation_around(word)) return true;
      }
    return false;
  }

  void tell_what_leads_elsewhere(const Call& call, Configuration& c) {
    for (int i = 0; i < call.count; ++i) {
      const ArgumentType& type = call.types[i];
      if (type.kind == ArgumentKind::Pointer && type.pointee_pointer && leads_elsewhere(type, call.values[i]))
        report("limit\t%d\tparameter @N%d@ points to pointers to what a kernel made with new or malloc, or to the "
               "host's memory; allocate it with cudaMalloc", c.id, i);
    }
  }

  void store_after(const Call& call, Configuration& c) {
    const std::vector<const Allocation*>& reachable = reached_.all;
    tell_what_leads_elsewhere(call, c);
    for (size_t k = 0; k < reachable.size(); ++k)
      report("after\t%d\t%zu\t%s", c.id, k, store((const void*)reachable[k]->begin, reachable[k]->size).c_str());
    for (GlobalVariable* v = global_variables; v; v = v->next)
      report("gafter\t%d\t%s\t%s", c.id, v->name, store(portable(*v).data(), v->size).c_str());
  }

  std::map<std::string, Repeat> repeats_;
  std::map<std::string, Configuration> configurations_;
  std::map<std::string, Totals> totals_;
  std::map<std::string, double> last_seconds_;
  std::string folder_, target_, exact_, idempotent_;
  Configuration *current_ = nullptr, *previous_ = nullptr;
  std::vector<uintptr_t> previous_set_;
  Reached reached_;                  // of the launch that is recorded
  bool recording_ = false, proving_ = false;
  double timed_s_ = 0;               // of a run of which only times are wanted; 0: of another
  double stop_s_ = 0;                // after which the program is ended; 0: not here
  double launch_s_ = 0;              // for so long the first launch of a timed run is waited for
  std::atomic<double> begun_{0};     // when its time began
  std::atomic<bool> has_launched_{false};
  std::atomic<double> whole_until_{0};  // till when every block of every launch is executed all the same
  std::atomic<const char*> running_{nullptr};  // the kernel of the launch that is executed
  std::atomic<double> last_end_{never};  // when the last launch ended
  std::atomic<bool> any_recorded_{false};
  unsigned long long room_ = 2ull << 30, written_ = 0;
  Digest digest_;
  uint64_t digest_at_ = 0;
};

static ProgramRecorder* program_recorder = nullptr;

// Before the program's own constructors run, after the C library's.
__attribute__((constructor(101))) static void begin_process() {
  open_report();
  install_signal_stack();
  install_fault_handlers();
  if (option("CUDAOPS_RECORD")) recorder = program_recorder = new ProgramRecorder;
}

__attribute__((destructor)) static void end_process() {
  if (!program_recorder) return;
  check_guards(nullptr);
  program_recorder->finish();
}

}  // namespace cudaops
