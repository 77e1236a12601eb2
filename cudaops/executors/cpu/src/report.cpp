// The report file and the faults that end a process.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <vector>

#define CUDAOPS_CLOCK_WRAPPERS
#include "cudaops/clock_reads.h"
#include "machine.h"

namespace cudaops {

static int report_fd = -1;
static std::mutex report_lock;
static std::atomic<bool> stopping{false};

const char* option(const char* name) {
  const char* value = getenv(name);
  return value && *value ? value : nullptr;
}

double now() {
  timespec t;
  __real_clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void open_report() {
  const char* path = option("CUDAOPS_REPORT");
  if (path && report_fd < 0) report_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  unsetenv("CUDAOPS_REPORT");  // no business of the code that runs here
}

static void write_line(char* text, int length, size_t room) {
  if (length < 0 || report_fd < 0) return;
  if ((size_t)length > room - 2) length = (int)room - 2;
  for (int i = 0; i < length; ++i)
    if (text[i] == '\n' || text[i] == '\r') text[i] = ' ';
  text[length] = '\n';
  if (write(report_fd, text, (size_t)length + 1) < 0) _exit(87);
}

void report(const char* format, ...) {
  char text[4096];
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  int length = vsnprintf(text, sizeof text, format, list);
  std::vector<char> longer;  // the bytes of a large structure
  if (length >= (int)sizeof text) {
    longer.resize((size_t)length + 2);
    vsnprintf(longer.data(), longer.size(), format, again);
  }
  va_end(again);
  va_end(list);
  std::lock_guard<std::mutex> hold(report_lock);
  if (longer.empty()) write_line(text, length, sizeof text);
  else write_line(longer.data(), length, longer.size());
}

static const char* kernel_name() { return worker && worker->in_kernel ? worker->call->kernel : ""; }

static _Unwind_Reason_Code report_frame(_Unwind_Context* context, void* left) {
  char text[64];
  int n = snprintf(text, sizeof text, "frame\t%llx", (unsigned long long)_Unwind_GetIP(context));
  write_line(text, n, sizeof text);
  return --*static_cast<int*>(left) > 0 ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// Who called the function that failed: host code fails in the C library as a rule. Last of all, since a
// broken stack may end the process here.
static void report_callers() {
  int left = 64;
  _Unwind_Backtrace(report_frame, &left);
}

void stop(const char* kind, const void* pc, const char* format, ...) {
  if (stopping.exchange(true)) {
    // Another thread is already reporting; it ends the process.
    for (;;) pause();
  }
  if (std::strcmp(kind, "infrastructure") != 0 && recorder->forgives()) {
    recorder->end();
    _exit(0);
  }
  char text[4096];
  int n = snprintf(text, sizeof text, "fault\t%s\t%llx\t%s\t", kind, (unsigned long long)(uintptr_t)pc, kernel_name());
  va_list list;
  va_start(list, format);
  n += vsnprintf(text + n, sizeof text - (size_t)n, format, list);
  va_end(list);
  write_line(text, n, sizeof text);
  if (!worker || !worker->in_kernel) report_callers();
  _exit(86);
}

void warn(const char* kind, const void* pc, const void* other, const char* format, ...) {
  char text[4096];
  int n = snprintf(text, sizeof text, "warn\t%s\t%llx\t%llx\t%s\t", kind, (unsigned long long)(uintptr_t)pc,
                   (unsigned long long)(uintptr_t)other, kernel_name());
  va_list list;
  va_start(list, format);
  n += vsnprintf(text + n, sizeof text - (size_t)n, format, list);
  va_end(list);
  std::lock_guard<std::mutex> hold(report_lock);
  write_line(text, n, sizeof text);
}

static size_t host_stack_bytes() {
  rlimit limit{};
  return getrlimit(RLIMIT_STACK, &limit) == 0 ? limit.rlim_cur : 0;
}

static bool in_fiber_guard(uintptr_t address) {
  if (!worker || !worker->stacks) return false;
  uintptr_t low = (uintptr_t)worker->stacks;
  if (address < low || address >= low + worker->stack_stride * max_threads) return false;
  return (address - low) % worker->stack_stride < page;
}

// Of the first thread, where nothing lies above its stack but the stack.
static bool in_host_stack(uintptr_t address, uintptr_t top) {
  constexpr uintptr_t below = 64 << 10;  // what a call may touch before it moves the top
  return gettid() == getpid() && address + below >= top && address < top + host_stack_bytes();
}

std::atomic<int> beyond_told{0};

bool lets_beyond() {
  static const bool lets = option("CUDAOPS_LETS_BEYOND");
  return lets;
}

// Where only times are wanted, a kernel that goes a little past an allocation goes on: reads find zeros,
// writes stay in the guard. On a GPU neither is seen. The page is opened, and the instruction repeated.
static bool lets_past(uintptr_t address, bool write, const void* pc) {
  if (!lets_beyond() || !allocation_around(address)) return false;
  if (mprotect((void*)(address / page * page), page, PROT_READ | (write ? PROT_WRITE : 0)) != 0) return false;
  if (beyond_told++ >= most_beyond_told) return true;
  char place[256];
  describe_place(place, sizeof place, address, 1);
  warn("out_of_bounds", pc, nullptr, "%s %s", write ? "write" : "read", place);
  return true;
}

static void on_fault(int signal, siginfo_t* info, void* raw) {
  auto* context = static_cast<ucontext_t*>(raw);
  const void* pc = nullptr;
  const char* access = "access";
  uintptr_t top = 0;
#if defined(__x86_64__)
  pc = (const void*)context->uc_mcontext.gregs[REG_RIP];
  top = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
  access = context->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#elif defined(__aarch64__)
  pc = (const void*)context->uc_mcontext.pc;
  top = context->uc_mcontext.sp;
#endif
  bool kernel = worker && worker->in_kernel;
  auto address = (uintptr_t)info->si_addr;
  char place[256];
  if (signal == SIGSEGV || signal == SIGBUS) {
    if (in_fiber_guard(address))
      stop("crash", pc, "a thread's local arrays need more than the %zu KiB of its stack", fiber_bytes >> 10);
    if (!kernel && in_host_stack(address, top))
      stop("crash", pc, "host code: local arrays or calls need more than the %zu MiB of the stack; use the heap",
           host_stack_bytes() >> 20);
    if (kernel && signal == SIGSEGV && lets_past(address, *access == 'w', pc)) return;
    bool device = allocation_around(address) != nullptr;
    describe_place(place, sizeof place, address, 1);
    if (kernel) stop("out_of_bounds", pc, "%s %s", access, place);
    if (device) stop("out_of_bounds", pc, "host code: %s %s", access, place);
    stop("crash", pc, "host code: segmentation fault, %s at address 0x%zx", access, (size_t)address);
  }
  const char* name = signal == SIGFPE ? "integer division by zero" : signal == SIGILL ? "illegal instruction"
                     : signal == SIGABRT ? "aborted" : "signal";
  stop("crash", pc, "%s%s", kernel ? "" : "host code: ", name);
}

void install_signal_stack() {
  constexpr size_t bytes = 64 << 10;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
}

void install_fault_handlers() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &action, nullptr);
}

}  // namespace cudaops

// What the program could not open, for the message where it fails later. These stand before the C library's,
// for its streams too.
static FILE* opened(FILE* (*open_file)(const char*, const char*), const char* path, const char* mode) {
  FILE* file = open_file(path, mode);
  static std::atomic<int> told{0};
  int error = errno;
  if (!file && path && mode && told++ < 8) cudaops::report("unopened\t%.8s\t%.400s", mode, path);
  errno = error;
  return file;
}

extern "C" FILE* fopen(const char* path, const char* mode) {
  static auto next = (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, "fopen");
  return opened(next, path, mode);
}

extern "C" FILE* fopen64(const char* path, const char* mode) {
  static auto next = (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, "fopen64");
  return opened(next, path, mode);
}

// The linker sends the author's printf and assert here (--wrap).
static std::atomic<bool> kernel_printed{false};
namespace cudaops {
bool printed_in_kernel() { return kernel_printed.exchange(false); }
}

extern "C" int __wrap_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
extern "C" int __wrap_printf(const char* format, ...) {
  if (cudaops::worker && cudaops::worker->in_kernel) kernel_printed = true;
  va_list list;
  va_start(list, format);
  int written = vprintf(format, list);
  va_end(list);
  return written;
}

extern "C" [[noreturn]] void __real___assert_fail(const char*, const char*, unsigned, const char*);
extern "C" [[noreturn]] void __wrap___assert_fail(const char* expression, const char* file, unsigned line,
                                                  const char* function) {
  if (cudaops::worker && cudaops::worker->in_kernel)
    cudaops::stop("crash", __builtin_return_address(0), "assertion `%s` failed", expression);
  __real___assert_fail(expression, file, line, function);
}
