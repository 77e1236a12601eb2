// A library for LD_PRELOAD: launches that a program makes by the driver's API go through the recorder
// where their kernel is one of those that CUDAOPS_RECORDER_KERNELS lists.
#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "calls.h"
#include "hooks.h"

#include "arguments.h"
#include "clock_reads.h"
#include "cudaops_capture/launch.h"
#include "device.h"
#include "report.h"

namespace cudaops_capture {

using cudaops::ArgumentKind;
using cudaops::ArgumentType;

const cudaops::Driver& the_driver() { return *cudaops::driver(); }
void forget_context(cudaops::Context* gone);

namespace {

struct Element {
  std::string name;
  unsigned size;
  bool is_scalar;
};

// What the list says: `kernel NAME QUALIFIED_NAME TYPE...` (types of one with C linkage, whose name does
// not tell them), `element TYPE ELEMENT SIZE IS_SCALAR`, and `variable QUALIFIED_NAME SYMBOL`.
struct Wanted {
  std::string name;
  std::vector<std::string> types;
};
struct List {
  std::map<std::string, Wanted> kernels;  // by qualified name
  std::map<std::string, Element> elements;
  std::vector<std::pair<std::string, std::string>> variables;

  explicit List(const char* path) {
    std::ifstream file(path);
    for (std::string text; std::getline(file, text);) {
      std::vector<std::string> words;
      std::stringstream line(text);
      for (std::string word; std::getline(line, word, '\t');) words.push_back(word);
      if (words.size() >= 3 && words[0] == "kernel")
        kernels[words[2]] = Wanted{words[1], {words.begin() + 3, words.end()}};
      else if (words.size() == 3 && words[0] == "variable")
        variables.emplace_back(words[1], words[2]);
      else if (words.size() == 5 && words[0] == "element")
        elements[words[1]] = Element{words[2], (unsigned)std::stoul(words[3]), words[4] == "1"};
    }
  }
};

// A kernel's name, taken apart as `cudaops.program.instances.callee_of` does.
struct Signature {
  std::string shown;      // demangled
  std::string qualified;  // without template arguments
  std::string parameters;
};

std::string without(std::string text, const std::string& part) {
  for (size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
  return text;
}

Signature signature_of(const char* symbol) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> demangled(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), free);
  if (status != 0 || strncmp(symbol, "_Z", 2) != 0) return {symbol, symbol, ""};
  const std::string text = without(demangled.get(), "(anonymous namespace)::");
  size_t begin = 0, end = text.size();
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += (text[i] == '<') - (text[i] == '>');
    if (depth == 0 && text[i] == ' ') begin = i + 1;
    if (depth == 0 && text[i] == '(') {
      end = i;
      break;
    }
  }
  const std::string callee = text.substr(begin, end - begin);
  const size_t last = text.rfind(')');
  const bool has = last != std::string::npos && last > end;
  return {demangled.get(), callee.substr(0, callee.find('<')), has ? text.substr(end + 1, last - end - 1) : ""};
}

std::vector<std::string> split_types(const std::string& text) {
  std::vector<std::string> found;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) depth += (strchr("<({[", text[i]) != nullptr) - (strchr(">)}]", text[i]) != nullptr);
    if (i < text.size() && (text[i] != ',' || depth != 0)) continue;
    const size_t first = text.find_first_not_of(' ', begin);
    if (first < i) found.push_back(text.substr(first, i - first));
    begin = i + 1;
  }
  return found;
}

bool cut_end(std::string& text, const std::string& end) {
  if (text.size() < end.size() || text.compare(text.size() - end.size(), end.size(), end) != 0) return false;
  text.erase(text.size() - end.size());
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return true;
}

const char* kept_forever(const std::string& text) {
  static auto* all = new std::set<std::string>;
  return all->insert(text).first->c_str();
}

// `float const*`, `int`, `Params`; the size of a structure is not known here.
ArgumentType type_of(std::string text, const List& list) {
  bool is_const = cut_end(text, " const");
  const bool is_pointer = cut_end(text, "*");
  if (is_pointer) is_const = cut_end(text, " const");
  if (text.compare(0, 6, "const ") == 0) is_const = true, text.erase(0, 6);
  const auto found = list.elements.find(text);
  const char* element = found == list.elements.end() ? "opaque" : kept_forever(found->second.name);
  const bool is_table = !text.empty() && text.back() == '*', is_known = found != list.elements.end();
  const bool leads_on = is_table || (is_pointer && !is_known && text != "void");
  const auto holds = leads_on ? cudaops::Holds::Anything : cudaops::Holds::Nothing;
  if (is_pointer) return {ArgumentKind::Pointer, element, sizeof(void*), is_const, is_table, holds, nullptr};
  const unsigned size = found == list.elements.end() ? 0 : found->second.size;
  if (size != 0 && found->second.is_scalar) return {ArgumentKind::Scalar, element, size, false, false, holds, nullptr};
  return {ArgumentKind::Opaque, kept_forever("[with T = " + text + "]"), size, false, false, holds, nullptr};
}

// A kernel of the list by the name that the driver knows it by.
struct Known {
  std::string name;
  int number = 0;
  std::vector<ArgumentType> types;
  std::vector<cudaops::Parameter> parameters;
  std::string problem;  // why its launches cannot be recorded
};

class Seen {
 public:
  static Seen* the() {
    static Seen* seen = begun();
    return seen;
  }

  // Null where the launch is none that is recorded.
  const Known* known(cudaops::Function* function) {
    const char* symbol = name_of(function);
    if (!symbol) return nullptr;
    std::lock_guard<std::mutex> hold(lock_);
    auto found = by_symbol_.find(symbol);
    if (found == by_symbol_.end()) found = by_symbol_.emplace(symbol, made(symbol, function)).first;
    const Known* known = found->second.get();
    return known && known->problem.empty() && !same_layout(*known, function) ? nullptr : known;
  }

  // Those that are in the kernel's module, as a list.
  std::vector<Variable> variables_of(cudaops::Function* function) const {
    std::vector<Variable> found;
    found.reserve(list_.variables.size());
    for (auto& [name, symbol] : list_.variables) {
      cudaops::Address at = 0;
      size_t size = 0;
      if (cudaops::find_variable(the_driver(), function, symbol.c_str(), &at, &size))
        found.emplace_back(name.c_str(), (void*)at, size, nullptr);
    }
    for (size_t i = 1; i < found.size(); ++i) found[i - 1].next = &found[i];
    return found;
  }

  void tell_once(const std::string& text) {
    std::lock_guard<std::mutex> hold(lock_);
    if (told_.size() < most_told && told_.insert(text).second) note(text);
  }

 private:
  static constexpr size_t most_told = 200;  // lines

  explicit Seen(const char* path) : list_(path) {}

  // Of the first process alone that launches; those that it starts find nothing to do.
  static Seen* begun() {
    const char* report = option("CUDAOPS_RECORDER_REPORT");
    const char* path = option("CUDAOPS_RECORDER_KERNELS");
    if (!report || !path) return nullptr;
    const int claim = open((std::string(report) + ".claimed").c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (claim < 0) return nullptr;
    close(claim);
    auto* seen = new Seen(path);
    unsetenv("CUDAOPS_RECORDER_KERNELS");
    return seen;
  }

  static const char* name_of(cudaops::Function* function) {
    const char* name = nullptr;
    const cudaops::Driver& driver = the_driver();
    if (driver.cuFuncGetName(&name, function) == cudaSuccess) return name;
    return driver.cuKernelGetName(&name, (cudaops::Kernel*)function) == cudaSuccess ? name : nullptr;
  }

  static bool parameter_of(cudaops::Function* function, size_t i, size_t& offset, size_t& size) {
    const cudaops::Driver& driver = the_driver();
    return (driver.cuFuncGetParamInfo && driver.cuFuncGetParamInfo(function, i, &offset, &size) == cudaSuccess) ||
           (driver.cuKernelGetParamInfo &&
            driver.cuKernelGetParamInfo((cudaops::Kernel*)function, i, &offset, &size) == cudaSuccess);
  }

  // A name with C linkage may be that of another module's kernel as well.
  static bool same_layout(const Known& known, cudaops::Function* function) {
    if (!the_driver().cuFuncGetParamInfo) return true;
    const size_t count = known.parameters.size();
    for (size_t i = 0; i <= count; ++i) {
      size_t offset = 0, size = 0;
      if (parameter_of(function, i, offset, size) != (i < count)) return false;
      if (i < count && (offset != known.parameters[i].offset || size != known.parameters[i].size)) return false;
    }
    return true;
  }

  std::unique_ptr<Known> made(const char* symbol, cudaops::Function* function) {
    const Signature signature = signature_of(symbol);
    auto listed = list_.kernels.find(signature.qualified);
    if (listed == list_.kernels.end() && signature.shown == symbol)  // C linkage leaves namespaces out
      listed = std::find_if(list_.kernels.begin(), list_.kernels.end(),
                            [&](const auto& one) { return one.second.name == symbol; });
    if (listed == list_.kernels.end()) {
      if (told_.size() < most_told) note(line("other\t%s", signature.qualified.c_str()));
      told_.insert(signature.shown);
      return nullptr;
    }
    auto known = std::make_unique<Known>();
    known->name = listed->second.name;
    known->number = ++numbers_;
    const bool is_mangled = signature.shown != symbol;
    for (const std::string& type : is_mangled ? split_types(signature.parameters) : listed->second.types)
      known->types.push_back(type_of(type, list_));
    known->problem = laid_out(*known, function);
    note(line("symbol\t%x\t%s", (unsigned)known->number, symbol));
    return known;
  }

  // Fills in where the parameters stand, and sizes of structures; what is wrong with them, if anything.
  static std::string laid_out(Known& known, cudaops::Function* function) {
    const bool asked = the_driver().cuFuncGetParamInfo != nullptr;
    size_t end = 0;
    for (size_t i = 0; i < known.types.size(); ++i) {
      ArgumentType& type = known.types[i];
      size_t offset = 0, size = type.size;
      if (asked ? !parameter_of(function, i, offset, size) : size == 0)
        return asked ? "the kernel that runs has fewer parameters than the one in the file"
                     : "the driver is older than CUDA 12.4 and does not tell how large its structures are";
      if (!asked) offset = (end + size - 1) / size * size;
      if (type.size != 0 && type.size != size) return "the kernel that runs has other parameters than the one in the file";
      type.size = (unsigned)size;
      known.parameters.push_back({(unsigned)offset, (unsigned)size});
      end = offset + size;
    }
    size_t offset = 0, size = 0;
    const bool more = asked && parameter_of(function, known.types.size(), offset, size);
    return more ? "the kernel that runs has more parameters than the one in the file" : "";
  }

  std::mutex lock_;
  const List list_;
  std::map<std::string, std::unique_ptr<Known>> by_symbol_;
  std::set<std::string> told_;
  int numbers_ = 0;
};

// One launch as the program asked for it, and what the driver said.
struct Asked {
  cudaops::Wrapped which;
  const cudaops::Launch& launch;
  const cudaops::LaunchConfig* config;
  cudaops::Result result = cudaSuccess;

  cudaops::Result start() {
    const cudaops::Launch& l = launch;
    if (config) {
      const auto author = cudaops::original<cudaops::LaunchKernelEx>(which);
      return result = author ? author(config, l.function, l.parameters, l.extra) : cudaops::NOT_INITIALIZED;
    }
    const auto author = cudaops::original<cudaops::LaunchKernel>(which);
    if (!author) return result = cudaops::NOT_INITIALIZED;
    return result = author(l.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.smem,
                           l.stream, l.parameters, l.extra);
  }
};

cudaError_t start_asked(const Call& call) { return static_cast<Asked*>(call.closure)->start(); }

cudaops::Result launched(Asked asked) {
  const cudaops::Driver* driver = cudaops::driver();
  Seen* seen = driver ? Seen::the() : nullptr;
  if (!seen) return asked.start();
  if (const char* lacks = driver->lacks()) {
    seen->tell_once(line("lacks\t%s", lacks));
    return asked.start();
  }
  const cudaops::Launch& launch = asked.launch;
  const Known* known = seen->known(launch.function);
  if (!known) {
    stirred();
    return asked.start();
  }
  const char* special = asked.config ? cudaops::special_attribute(*asked.config) : nullptr;
  std::vector<const void*> given(known->types.size() + 1);
  std::string problem = special ? special : known->problem;
  if (problem.empty() &&
      !cudaops::find_arguments(known->parameters.data(), (unsigned)known->parameters.size(), launch, given.data()))
    problem = "its arguments were not given in a way that is known";
  if (!problem.empty()) {
    seen->tell_once(line("unseen\t%s\t%s", known->name.c_str(), problem.c_str()));
    return asked.start();
  }
  Call call{};
  call.kernel = known->name.c_str();
  call.geometry = {{launch.grid[0], launch.grid[1], launch.grid[2]},
                   {launch.block[0], launch.block[1], launch.block[2]},
                   launch.smem, launch.our_stream()};
  call.function = reinterpret_cast<const void*>((uintptr_t)known->number);
  call.start = &start_asked;
  call.closure = &asked;
  call.count = (int)known->types.size();
  call.types = known->types.data();
  call.values = const_cast<void**>(given.data());
  const std::vector<Variable> variables = seen->variables_of(launch.function);
  call.variables = variables.empty() ? nullptr : variables.data();
  submit(call);
  return asked.result;
}

// What the program's own call of the same name would do.
template <class... P>
cudaops::Result authors(cudaops::Wrapped which, P... arguments) {
  const auto author = cudaops::original<cudaops::Result(P...)>(which);
  return author ? author(arguments...) : cudaops::NOT_INITIALIZED;
}

cudaops::Result captured(cudaops::Result begun) {
  if (begun == cudaSuccess && Seen::the()) graph_begins();
  return begun;
}

cudaops::Result ended(cudaops::Result result) {
  if (Seen::the()) graph_ends();
  return result;
}

// Before a context goes: what its events say, as seen from within it.
void leaving(cudaops::Context* gone) {
  const cudaops::Driver* driver = cudaops::driver();
  cudaops::Context* current = nullptr;
  if (!driver || driver->lacks() || !Seen::the() || driver->cuCtxGetCurrent(&current) != cudaSuccess) return;
  if (!gone) gone = current;
  if (!gone || (gone != current && driver->cuCtxSetCurrent(gone) != cudaSuccess)) return;
  leave_context();
  if (gone != current) driver->cuCtxSetCurrent(current);
  forget_context(gone);
}

}  // namespace
}  // namespace cudaops_capture

namespace cudaops {

bool is_off() { return false; }

Result launch_kernel(Wrapped which, const Launch& launch) {
  return cudaops_capture::launched({which, launch, nullptr});
}

Result launch_kernel_ex(Wrapped which, const LaunchConfig* config, Function* function, void** parameters,
                        void** extra) {
  if (!config) return cudaops_capture::authors(which, config, function, parameters, extra);
  const Launch launch{function,       config->grid, config->block, config->smem,
                      config->stream, parameters,   extra,         which == LAUNCH_KERNEL_EX_PTSZ};
  return cudaops_capture::launched({which, launch, config});
}

}  // namespace cudaops

extern "C" {

CUDAOPS_EXPORTED Result cuEventRecord(Event* event, Stream* stream) {
  clock_read(Clock::Event);
  return cudaops_capture::authors(EVENT_RECORD, event, stream);
}
CUDAOPS_EXPORTED Result cuEventRecord_ptsz(Event* event, Stream* stream) {
  clock_read(Clock::Event);
  return cudaops_capture::authors(EVENT_RECORD_PTSZ, event, stream);
}
CUDAOPS_EXPORTED Result cuStreamBeginCapture_v2(Stream* stream, int mode) {
  return cudaops_capture::captured(cudaops_capture::authors(BEGIN_CAPTURE, stream, mode));
}
CUDAOPS_EXPORTED Result cuStreamBeginCapture_v2_ptsz(Stream* stream, int mode) {
  return cudaops_capture::captured(cudaops_capture::authors(BEGIN_CAPTURE_PTSZ, stream, mode));
}
CUDAOPS_EXPORTED Result cuStreamEndCapture(Stream* stream, void** graph) {
  return cudaops_capture::ended(cudaops_capture::authors(END_CAPTURE, stream, graph));
}
CUDAOPS_EXPORTED Result cuStreamEndCapture_ptsz(Stream* stream, void** graph) {
  return cudaops_capture::ended(cudaops_capture::authors(END_CAPTURE_PTSZ, stream, graph));
}
CUDAOPS_EXPORTED Result cuCtxDestroy_v2(Context* context) {
  cudaops_capture::leaving(context);
  return cudaops_capture::authors(CONTEXT_DESTROY, context);
}
CUDAOPS_EXPORTED Result cuCtxDetach(Context* context) {
  cudaops_capture::leaving(context);
  return cudaops_capture::authors(CONTEXT_DETACH, context);
}
CUDAOPS_EXPORTED Result cuDevicePrimaryCtxRelease_v2(Device device) {
  cudaops_capture::leaving(nullptr);
  return cudaops_capture::authors(PRIMARY_RELEASE, device);
}
CUDAOPS_EXPORTED Result cuDevicePrimaryCtxReset_v2(Device device) {
  cudaops_capture::leaving(nullptr);
  return cudaops_capture::authors(PRIMARY_RESET, device);
}
}
