// The main of a unit: does what a specification file says, line by line (cpu_unit.py writes it).
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cudaops/entry.h"
#include "machine.h"

// Of gcov's library, in a build that counts; null in any other.
extern "C" void __gcov_reset() __attribute__((weak));

namespace cudaops {

extern bool poison_shared_memory, only_selected_blocks, launches_must_be_valid;
extern std::vector<unsigned long long> selected_blocks;
void allow_unit_shared(size_t bytes);

// Where only times are wanted, a launch before the sampled one may be too large to execute whole.
struct Limited : Recorder {
  double seconds = atof(option("CUDAOPS_EARLIER_SECONDS"));
  double deadline(const Call&) override { return only_selected_blocks ? 0 : now() + seconds; }
};

static Entry* entries = nullptr;
Entry::Entry(int index, const char* kernel, int count, const void* function,
             void (*run)(const Entry&, Call, const RawValue*))
    : index(index), kernel(kernel), count(count), run(run), function(function), next(entries) {
  entries = this;
}

void refuse_value(const char* kernel, int position, const char* why) {
  stop("launch_refused", nullptr, "%s: argument %d: %s", kernel, position + 1, why);
}

static void bad(const std::string& what) { stop("infrastructure", nullptr, "%s", what.c_str()); }

struct Step {
  int entry;
  dim3 grid, block, cluster;
  bool is_together = false;
  size_t shared_bytes;
  std::vector<RawValue> values;
};

class Runner {
 public:
  void read(const char* path) {
    std::ifstream file(path);
    if (!file) bad("no specification");
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string verb;
      words >> verb;
      if (verb == "alloc") alloc(words);
      else if (verb == "scratch") scratch(words);
      else if (verb == "global") global(words);
      else if (verb == "launch") launch_line(words);
      else if (verb == "was") was(words);
      else if (verb == "cluster") cluster(words);
      else if (verb == "together") steps_.back().cluster = steps_.back().grid, steps_.back().is_together = true;
      else if (verb == "value") value(words);
      else if (verb == "shared") { size_t n; words >> n; allow_unit_shared(n); }
      else if (verb == "blocks") blocks(words);
      else if (verb == "place") place(words);
      else if (verb == "limit") words >> limit_s_;
      else if (verb == "dump" || verb == "gdump") dumps_.push_back(line);
      else bad("unknown line in the specification: " + line);
    }
  }

  // Launches everything that was read since the last call, and writes its dumps. Seconds in kernels.
  double finish() {
    if (in_series_) report("began\t%d", begun_++);
    double start = now();
    limit(limit_s_);
#ifdef CUDAOPS_INSTRUMENTED
    checker_launch_begin();
#endif
    std::string before = own_variables();
    move_pointers(/*back=*/false);
    run();
    if (own_variables() != before) report("kept");
    limit(0);
#ifdef CUDAOPS_INSTRUMENTED
    if (limit_s_ > 0) checker_launch_end();
#endif
    seconds_ += now() - start;
    move_pointers(/*back=*/true);
    dump();
    return seconds_;
  }

 private:
  // Ends the process where a launch of a series takes so many seconds of the processor; 0: it may.
  static void limit(double seconds) {
    if (seconds > 0) signal(SIGPROF, [](int) { stop("timeout", nullptr, "did not end in the time that it was given"); });
    itimerval timer{};
    timer.it_value.tv_sec = (time_t)seconds;
    timer.it_value.tv_usec = (suseconds_t)((seconds - (double)timer.it_value.tv_sec) * 1e6);
    setitimer(ITIMER_PROF, &timer, nullptr);
  }

  // What stands in the variables that a rewrite brings along: "ADDRESS:BYTES ..." in CUDAOPS_OWN.
  static std::string own_variables() {
    std::string held;
    const char* text = option("CUDAOPS_OWN");
    for (char* end; text && *text; text = *end ? end + 1 : end) {
      size_t at = strtoull(text, &end, 10), size = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
      held.append((const char*)at, size);
    }
    return held;
  }

  void run() {
    poison_shared_memory = launches_must_be_valid = true;
#ifdef CUDAOPS_INSTRUMENTED
    trace_regions();
#endif
    for (int number = 0; number < (int)steps_.size(); ++number) {
      if (restricted_ >= 0 && number > restricted_) break;  // nobody looks at what comes later
      Step& step = steps_[number];
      only_selected_blocks = restricts_ && (restricted_ < 0 || restricted_ == number);
#ifdef CUDAOPS_INSTRUMENTED
      trace_on = only_selected_blocks;
#endif
      if (only_selected_blocks && restricted_ == number && __gcov_reset) {
        __gcov_reset();
        lanes_start();
      }
      Entry* entry = find(step.entry);
      if ((int)step.values.size() != entry->count)
        stop("launch_refused", nullptr, "%s takes %d arguments, the launch gives %zu", entry->kernel, entry->count,
             step.values.size());
      Call call{};
      call.kernel = entry->kernel;
      call.grid = step.grid;
      call.block = step.block;
      call.cluster = step.cluster;
      call.is_together = step.is_together;
      call.shared_bytes = step.shared_bytes;
      entry->run(*entry, call, step.values.data());
    }
    lanes_write();
#ifdef CUDAOPS_INSTRUMENTED
    trace_finish();
#endif
  }

  void dump() {
    for (const std::string& line : dumps_) {
      std::istringstream words(line);
      std::string verb, path;
      words >> verb;
      if (verb == "dump") {
        int index;
        words >> index;
        save(rest(words), (const void*)at_[index], size_[index]);
      } else {
        std::string name;
        words >> name;
        GlobalVariable* v = variable(name);
        save(rest(words), portable(*v).data(), v->size);
      }
    }
  }

  static std::string rest(std::istringstream& words) {
    std::string text;
    std::getline(words >> std::ws, text);
    return text;
  }

  // "fill BYTE" or "file PATH".
  void contents(std::istringstream& words, void* to, size_t size) {
    std::string how;
    words >> how;
    if (how == "fill") {
      int byte;
      words >> byte;
      std::memset(to, byte, size);
      return;
    }
    std::string path = rest(words);
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0) bad("cannot read " + path);
    if ((size_t)info.st_size != size) bad(path + " has another size than its allocation");
    for (size_t done = 0; done < size;) {
      ssize_t n = ::read(fd, (char*)to + done, size - done);
      if (n <= 0) bad("cannot read " + path);
      done += (size_t)n;
    }
    close(fd);
  }

  // "was INDEX ADDRESS SIZE FACTOR HOLDS": where the program had a buffer, by how much its elements are
  // wider here, and whether addresses stand in it.
  void was(std::istringstream& words) {
    int index;
    Place p{};
    words >> index >> p.begin >> p.size >> p.factor >> p.holds;
    places_[index] = p;
  }

  // Addresses that stand in memory, from where the program had them to where they are here, or back.
  void move_pointers(bool back) {
    Moves moves;
    for (auto& [index, p] : places_)
      if (at_.count(index)) {
        if (back) moves[at_[index]] = Move{p.size * p.factor, p.begin, 1, p.factor};
        else moves[p.begin] = Move{p.size, at_[index], p.factor, 1};
      }
    for (auto& [index, p] : places_)
      if (p.holds && at_.count(index)) move_in((char*)at_[index], size_[index], moves);
    if (!places_.empty())
      for (GlobalVariable* v = global_variables; v; v = v->next) move_in((char*)v->address, v->size, moves);
  }
  struct Move {
    size_t size;
    uintptr_t to;
    size_t times, divided;
  };
  using Moves = std::map<uintptr_t, Move>;  // by where a buffer begins
  static void move_in(char* data, size_t size, const Moves& moves) {
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, data + i, sizeof word);
      auto after = moves.upper_bound(word);
      if (after == moves.begin()) continue;
      auto& [begin, move] = *std::prev(after);
      if (word - begin > move.size) continue;  // one behind the last element is its own, if no other's
      word = move.to + (word - begin) * move.times / move.divided;
      std::memcpy(data + i, &word, sizeof word);
    }
  }

  // "blocks LAUNCH B B B": this launch (-1: every one) runs these blocks only.
  void blocks(std::istringstream& words) {
    unsigned long long b;
    words >> restricted_;
    restricts_ = true;
    while (words >> b) selected_blocks.push_back(b);
  }

  // "place SHIFT": what follows is the next launch of a series. Another shift than the last gives its
  // buffers other addresses; what stands in the unit's own variables stays.
  void place(std::istringstream& words) {
    if (in_series_) finish();
    in_series_ = true;
    steps_.clear();
    dumps_.clear();
    places_.clear();
    size_t shift;
    words >> shift;
    if (shift == shift_) return;
    shift_ = shift;
    for (auto& one : at_) release(one.second);
    for (auto& one : scratch_) release(one.second);
    at_.clear();
    scratch_.clear();
  }

  uintptr_t reserve(size_t size, int number) {
    Allocation* a = allocate(size, Memory::Device, number, shift_);
    if (!a) bad("not enough memory for an allocation of " + std::to_string(size) + " bytes");
    return a->begin;
  }
  void alloc(std::istringstream& words) {
    int index;
    size_t size;
    words >> index >> size;
    if (at_.count(index) && size_[index] != size) {
      release(at_[index]);
      at_.erase(index);
    }
    if (!at_.count(index)) at_[index] = reserve(size, index);
    size_[index] = size;
    contents(words, (void*)at_[index], size);
  }
  // "scratch NAME SIZE fill BYTE", or "keep": what the launch before left there.
  void scratch(std::istringstream& words) {
    std::string name, how;
    size_t size;
    words >> name >> size;
    std::istringstream::pos_type filling = words.tellg();
    words >> how;
    if (how == "keep") {
      if (!scratch_.count(name)) bad("no scratch " + name + " to keep");
      return;
    }
    if (scratch_.count(name) && scratch_size_[name] != size) {
      release(scratch_[name]);
      scratch_.erase(name);
    }
    scratch_size_[name] = size;
    if (!scratch_.count(name)) {
      int number = -2 - (int)scratch_.size();
      scratch_[name] = reserve(size, number);
    }
    words.seekg(filling);
    contents(words, (void*)scratch_[name], size);
  }
  GlobalVariable* variable(const std::string& name) {
    for (GlobalVariable* v = global_variables; v; v = v->next)
      if (name == v->name) return v;
    bad("no variable " + name);
    return nullptr;
  }
  void global(std::istringstream& words) {
    std::string name;
    words >> name;
    GlobalVariable* v = variable(name);
    std::istringstream::pos_type from = words.tellg();
    std::string how;
    words >> how;
    struct stat info {};
    // A widened structure has another layout than what was captured of it.
    if (stat(rest(words).c_str(), &info) == 0 && (size_t)info.st_size != v->size)
      stop("launch_refused", nullptr, "the variable %s has %zu bytes here, %zu were captured", v->name, v->size,
           (size_t)info.st_size);
    words.clear();
    words.seekg(from);
    contents(words, v->address, v->size);
    make_own(*v);
  }
  void launch_line(std::istringstream& words) {
    Step s{};
    words >> s.entry >> s.grid.x >> s.grid.y >> s.grid.z >> s.block.x >> s.block.y >> s.block.z >> s.shared_bytes;
    steps_.push_back(s);
  }
  // "cluster X Y Z": of the last launch.
  void cluster(std::istringstream& words) {
    dim3& c = steps_.back().cluster;
    words >> c.x >> c.y >> c.z;
  }
  // "buffer INDEX OFFSET" or "scratch NAME OFFSET", behind the first word.
  uintptr_t address(const std::string& kind, std::istringstream& words) {
    std::string name;
    long long offset;
    words >> name >> offset;
    return (kind == "buffer" ? at_.at(std::stoi(name)) : scratch_.at(name)) + (uintptr_t)offset;
  }
  void value(std::istringstream& words) {
    std::string kind, name;
    words >> kind;
    RawValue v{};
    v.kind = RawValue::Pointer;
    if (kind == "buffer" || kind == "scratch") {
      v.bits = address(kind, words);
    } else if (kind == "int") {
      v.kind = RawValue::Integer;
      words >> name;
      v.integer = name[0] == '-' ? strtoll(name.c_str(), nullptr, 10) : (long long)strtoull(name.c_str(), nullptr, 10);
    } else if (kind == "float") {
      v.kind = RawValue::Floating;
      words >> name;
      v.floating = strtod(name.c_str(), nullptr);
    } else if (kind == "raw") {
      words >> name;
      v.kind = RawValue::Bytes;
      v.size = name.size() / 2;
      auto* bytes = new unsigned char[v.size + 1];
      for (size_t i = 0; i < v.size; ++i) bytes[i] = (unsigned char)strtoul(name.substr(2 * i, 2).c_str(), nullptr, 16);
      // Then, for each pointer in it: "AT buffer INDEX OFFSET".
      for (size_t at; words >> at >> kind;) {
        uintptr_t pointer = address(kind, words);
        if (at + sizeof pointer > v.size) bad("a pointer outside of its structure");
        std::memcpy(bytes + at, &pointer, sizeof pointer);
      }
      v.bytes = bytes;
    } else if (kind != "null") {
      bad("unknown value " + kind);
    }
    if (steps_.empty()) bad("a value before its launch");
    steps_.back().values.push_back(v);
  }

  static Entry* find(int index) {
    for (Entry* e = entries; e; e = e->next)
      if (e->index == index) return e;
    bad("no entry " + std::to_string(index));
    return nullptr;
  }

  static void save(const std::string& path, const void* data, size_t size) {
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) bad("cannot write " + path);
    for (size_t done = 0; done < size;) {
      ssize_t n = write(fd, (const char*)data + done, size - done);
      if (n <= 0) bad("cannot write " + path);
      done += (size_t)n;
    }
    close(fd);
  }

  struct Place {
    uintptr_t begin;
    size_t size, factor;
    bool holds;
  };
  std::map<int, Place> places_;
  bool restricts_ = false, in_series_ = false;
  int begun_ = 0;
  size_t shift_ = 0;
  double seconds_ = 0, limit_s_ = 0;
  int restricted_ = -1;
  std::map<int, uintptr_t> at_;
  std::map<int, size_t> size_;
  std::map<std::string, uintptr_t> scratch_;
  std::map<std::string, size_t> scratch_size_;
  std::vector<Step> steps_;
  std::vector<std::string> dumps_;
};

}  // namespace cudaops

int main(int argc, char** argv) {
  using namespace cudaops;
  if (argc != 2) return 2;
  if (option("CUDAOPS_EARLIER_SECONDS")) recorder = new Limited;
  Runner runner;
  runner.read(argv[1]);
  double seconds = runner.finish();
  report("ok\t%.9g", seconds);
  return 0;
}
