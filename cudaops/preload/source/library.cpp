// A library for LD_PRELOAD: where a program launches the author's kernel, the rewrite's are
// launched instead, if the plan of `winner.h` holds. Programs reach libcuda.so.1 by dlsym, by what
// its cuGetProcAddress gives them, or by being linked with it: all three meet a wrapper here, and
// everything else passes through untouched. docs/preload.md.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "hooks.h"
#include "rewrite.h"
#include "winner.h"

extern "C" CUDAOPS_EXPORTED size_t cudaops_preload_counts(char* text, size_t size);

namespace cudaops {

namespace {

enum Mode { ON, OFF, REPORT };

Mode mode() {
    static std::atomic<int> known{-1};
    int found = known.load(std::memory_order_relaxed);
    if (found < 0) {
        const char* given = getenv("CUDAOPS_PRELOAD");
        found = given == nullptr ? ON : strcmp(given, "0") == 0 ? OFF
                : strcmp(given, "report") == 0 ? REPORT : ON;
        known.store(found, std::memory_order_relaxed);
    }
    return static_cast<Mode>(found);
}

}  // namespace

bool is_off() { return mode() == OFF; }

namespace {

// ---- which kernel a handle is

constexpr size_t FOREIGN_SLOTS = 8192, PROBES = 16;
std::atomic<Function*> foreign[FOREIGN_SLOTS];
// Handles of kernels that are none of ours. One that is given to another kernel after its module
// was unloaded costs the rewrite, never a wrong result: what is ours is asked for at every launch.

std::atomic<Function*>& foreign_slot(Function* function, size_t probe) {
    const auto bits = reinterpret_cast<size_t>(function);
    const size_t hash = (bits >> 4) * 0x9E3779B97F4A7C15ULL >> 40;
    return foreign[(hash + probe) % FOREIGN_SLOTS];
}

bool is_foreign(Function* function) {
    for (size_t probe = 0; probe < PROBES; ++probe) {
        Function* found = foreign_slot(function, probe).load(std::memory_order_relaxed);
        if (found == function) return true;
        if (found == nullptr) return false;
    }
    return false;
}

void remember_foreign(Function* function) {
    for (size_t probe = 0; probe < PROBES; ++probe) {
        Function* expected = nullptr;
        std::atomic<Function*>& slot = foreign_slot(function, probe);
        if (slot.compare_exchange_strong(expected, function) || expected == function) return;
    }
}

// Past the name of an anonymous namespace (`36_GLOBAL__N__...`), in which nvcc writes the name of
// the file that it compiled; else past nothing.
const char* past_file_name(const char* text) {
    const char* end = text;
    size_t length = 0;
    while (*end >= '0' && *end <= '9') length = length * 10 + static_cast<size_t>(*end++ - '0');
    const bool is_one = end != text && strncmp(end, "_GLOBAL__N_", 11) == 0;
    return is_one && strnlen(end, length) == length ? end + length : text;
}

bool same_name(const char* a, const char* b) {
    for (;; ++a, ++b) {
        const char *after_a = past_file_name(a), *after_b = past_file_name(b);
        if (after_a != a && after_b != b) a = after_a, b = after_b;
        if (*a != *b) return false;
        if (*a == '\0') return true;
    }
}

Served* served_by(const Driver& driver, Function* function) {
    if (is_foreign(function)) return nullptr;
    const char* name = nullptr;
    const auto kernel = reinterpret_cast<Kernel*>(function);
    if (driver.cuFuncGetName(&name, function) != SUCCESS &&
        driver.cuKernelGetName(&name, kernel) != SUCCESS)
        return nullptr;
    for (Served& one : SERVED)
        if (name != nullptr && same_name(name, one.symbol)) return &one;
    remember_foreign(function);
    return nullptr;
}

// ---- whether the rewrite may stand for a launch

std::atomic<int> capabilities[KEPT_DEVICES];  // 10 * major + minor; 0: not asked yet

int capability(const Driver& driver, Device device) {
    const bool kept = device >= 0 && device < static_cast<int>(KEPT_DEVICES);
    int found = kept ? capabilities[device].load(std::memory_order_relaxed) : 0;
    if (found != 0) return found;
    int major = 0, minor = 0;
    if (driver.cuDeviceGetAttribute(&major, COMPUTE_CAPABILITY_MAJOR, device) != SUCCESS ||
        driver.cuDeviceGetAttribute(&minor, COMPUTE_CAPABILITY_MINOR, device) != SUCCESS)
        return 0;
    found = 10 * major + minor;
    if (kept) capabilities[device].store(found, std::memory_order_relaxed);
    return found;
}

// Source: CUDA C++ Programming Guide, binary compatibility: a cubin for X.y runs on X.z, z >= y;
// one of an architecture-specific target on X.y alone.
bool runs_on(const Driver& driver, const Image& image) {
    Device device = 0;
    if (driver.cuCtxGetDevice(&device) != SUCCESS) return false;
    const int found = capability(driver, device);
    const int built = 10 * image.major + image.minor;
    return image.exact ? found == built : found / 10 == image.major && found >= built;
}

// A mangled name tells the parameters' types. One with C linkage does not: any library of the
// process may have another kernel of that name.
bool same_parameters(const Driver& driver, const Served& served, Function* function) {
    if (strncmp(served.symbol, "_Z", 2) == 0 || driver.cuFuncGetParamInfo == nullptr ||
        driver.cuKernelGetParamInfo == nullptr)
        return true;
    const auto kernel = reinterpret_cast<Kernel*>(function);
    for (unsigned i = 0; i <= served.parameter_count; ++i) {
        size_t offset = 0, size = 0;
        const bool there = driver.cuFuncGetParamInfo(function, i, &offset, &size) == SUCCESS ||
                           driver.cuKernelGetParamInfo(kernel, i, &offset, &size) == SUCCESS;
        if (there != (i < served.parameter_count)) return false;
        const Parameter& one = served.parameters[i];
        if (there && (offset != one.offset || size != one.size)) return false;
    }
    return true;
}

// Null where the rewrite may be tried.
const char* objection(const Driver& driver, const Served& served, const Launch& launch) {
    int capturing = 0;
    if (driver.cuStreamIsCapturing(launch.our_stream(), &capturing) != SUCCESS || capturing != 0)
        return "the stream is captured into a graph";
    if (!runs_on(driver, served.image)) return "the device is not what the cubin was built for";
    if (!same_parameters(driver, served, launch.function))
        return "it is another kernel of the same name, with other parameters";
    return nullptr;
}

void count_author(Served& served, const char* why) {
    const char* none = nullptr;
    served.reason.compare_exchange_strong(none, why);
    served.by_author.fetch_add(1, std::memory_order_relaxed);
}

void add_counts(const char* path);

// ---- ending where the author's program was ended

// Seconds after which a program that launches nothing more is ended, as the recorder ended the
// author's (cudaops/executors/cuda/capture/src/recorder.cpp); 0: never.
double pause_s() {
    static const double seconds = [] {
        const char* given = getenv("CUDAOPS_PRELOAD_PAUSE_SECONDS");
        return given == nullptr ? 0 : atof(given);
    }();
    return seconds;
}

constexpr double IDLE_S = 0.1;  // a device that is waited for longer was at work
std::atomic<double> launched_s{0};
std::atomic<Context*> launched_in{nullptr};
pthread_once_t watching = PTHREAD_ONCE_INIT;

double monotonic_s() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

bool served_any() {
    for (Served& one : SERVED)
        if (one.by_rewrite.load() + one.by_author.load() != 0) return true;
    return false;
}

void* watch(void*) {
    const Driver& found = *known_driver.load(std::memory_order_acquire);
    for (const double pause = pause_s();;) {
        usleep(100000);
        if (!served_any() || monotonic_s() - launched_s < pause) continue;
        const double asked = monotonic_s();
        if (found.cuCtxSetCurrent(launched_in) != SUCCESS || found.cuCtxSynchronize() != SUCCESS)
            continue;
        if (monotonic_s() - asked < IDLE_S) break;
        launched_s = monotonic_s();
    }
    const char* const path = getenv("CUDAOPS_PRELOAD_COUNTS");
    if (path != nullptr) add_counts(path);
    fflush(nullptr);
    _Exit(0);
}

void start_watching() {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, watch, nullptr) == 0)
        pthread_detach(thread);
}

void launching(const Driver& driver) {
    Context* current = nullptr;
    launched_s = monotonic_s();
    if (driver.cuCtxGetCurrent(&current) == SUCCESS && current != nullptr) launched_in = current;
    pthread_once(&watching, start_watching);
}

// Whether the rewrite was launched, with what the driver said of it.
bool replaced(const Launch& launch, const char* special, Result* result) {
    Driver* found = is_off() ? nullptr : driver();
    if (found == nullptr || found->lacks() != nullptr) return false;
    if (pause_s() > 0) launching(*found);
    Served* served = served_by(*found, launch.function);
    if (served == nullptr) return false;
    const void* given[MOST_PARAMETERS];
    const char* why = special != nullptr ? special : objection(*found, *served, launch);
    if (why == nullptr && !find_arguments(served->parameters, served->parameter_count, launch, given))
        why = "its arguments were not given in a way that is known";
    if (why == nullptr) {
        Run run(*found, launch, *served);
        undefined_value = false;
        if (served->plan(run, given)) {
            *result = run.result();
            served->by_rewrite.fetch_add(1, std::memory_order_relaxed);
            return true;
        }
        why = run.why();
    }
    count_author(*served, why);
    return false;
}

}  // namespace

Result launch_kernel(Wrapped which, const Launch& launch) {
    const auto author = original<LaunchKernel>(which);
    if (author == nullptr) return NOT_INITIALIZED;
    Result result = SUCCESS;
    if (replaced(launch, nullptr, &result)) return result;
    return author(launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                  launch.block[1], launch.block[2], launch.smem, launch.stream, launch.parameters,
                  launch.extra);
}

Result launch_kernel_ex(Wrapped which, const LaunchConfig* config, Function* function,
                        void** parameters, void** extra) {
    const auto author = original<LaunchKernelEx>(which);
    if (author == nullptr) return NOT_INITIALIZED;
    Result result = SUCCESS;
    if (config != nullptr) {
        const Launch launch{function,     config->grid,   config->block, config->smem,
                            config->stream, parameters, extra, which == LAUNCH_KERNEL_EX_PTSZ};
        if (replaced(launch, special_attribute(*config), &result)) return result;
    }
    return author(config, function, parameters, extra);
}

namespace {

// ---- counts

// Text that is written as far as it fits, and counted beyond, as by snprintf.
struct Written {
    char* text;
    size_t size;
    size_t length = 0;

    void put(char one) {
        if (length + 1 < size) text[length] = one;
        ++length;
    }
    void add(const char* raw) {
        for (; *raw != '\0'; ++raw) put(*raw);
    }
    void add_quoted(const char* raw) {
        put('"');
        for (; *raw != '\0'; ++raw) {
            if (*raw == '"' || *raw == '\\') put('\\');
            put(*raw);
        }
        put('"');
    }
    void end() {
        if (size > 0) text[length < size ? length : size - 1] = '\0';
    }
};

void report() {
    Driver* found = known_driver.load(std::memory_order_acquire);
    if (found == nullptr) return;  // a program without CUDA, such as a shell around it
    const char* lacks = found->lacks();
    if (lacks != nullptr)
        fprintf(stderr, "cudaops: the driver has no %s: nothing was replaced\n", lacks);
    for (Served& one : SERVED) {
        const char* reason = one.reason.load();
        fprintf(stderr, "cudaops: %s: %llu launches by the rewrite, %llu by the author's kernel",
                one.shown, one.by_rewrite.load(), one.by_author.load());
        fprintf(stderr, reason == nullptr ? "\n" : " (first: %s)\n", reason);
    }
}

// One line a process that had the driver, whatever wrote to the file before.
void add_counts(const char* path) {
    FILE* file = known_driver.load(std::memory_order_acquire) == nullptr ? nullptr : fopen(path, "ae");
    if (file == nullptr) return;
    const size_t length = cudaops_preload_counts(nullptr, 0);
    char* const text = static_cast<char*>(malloc(length + 1));
    if (text != nullptr && cudaops_preload_counts(text, length + 1) == length)
        fprintf(file, "%s\n", text);
    free(text);
    fclose(file);
}

__attribute__((destructor)) void report_at_exit() {
    if (mode() == REPORT) report();
    const char* const path = getenv("CUDAOPS_PRELOAD_COUNTS");
    if (path != nullptr && !is_off()) add_counts(path);
}

}  // namespace
}  // namespace cudaops

using namespace cudaops;

extern "C" {

// Writes a JSON array, one object a kernel, ending in a null byte, as far as it fits; how many
// bytes it takes in all without that byte, as snprintf does. `text` may be null where `size` is 0.
CUDAOPS_EXPORTED size_t cudaops_preload_counts(char* text, size_t size) {
    Written out{text, size};
    const char* before = "[{\"kernel\": ";
    for (Served& one : SERVED) {
        char numbers[96];
        snprintf(numbers, sizeof numbers, ", \"rewrite\": %llu, \"author\": %llu, \"reason\": ",
                 one.by_rewrite.load(), one.by_author.load());
        out.add(before);
        out.add_quoted(one.shown);
        out.add(numbers);
        const char* const reason = one.reason.load();
        if (reason == nullptr) out.add("null");
        else out.add_quoted(reason);
        before = "}, {\"kernel\": ";
    }
    out.add("}]");
    out.end();
    return out.length;
}

}  // extern "C"
