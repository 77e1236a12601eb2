// The rewrite's launches in the place of one of the author's.
#pragma once

#include <pthread.h>
#include <stdio.h>

#include <atomic>

#include "arguments.h"
#include "driver.h"
#include "plan.h"

namespace cudaops {

constexpr unsigned MOST_STEPS = 16, MOST_SCRATCH = 16, MOST_PARAMETERS = 512;
// Of one block and grid, and of dynamic shared memory. Source: CUDA C++ Programming Guide,
// technical specifications; cudaops/program/plans.py holds a plan to the same.
constexpr long long MOST_GRID[3] = {2147483647, 65535, 65535}, MOST_BLOCK[3] = {1024, 1024, 64};
constexpr long long MOST_THREADS = 1024, MOST_SHARED = 232448;
constexpr long long MOST_SCRATCH_BYTES = 8LL << 30;
constexpr unsigned KEPT_DEVICES = 64;

class Run;

// A cubin, and which compute capability it was built for.
struct Image {
    const unsigned char* bytes;
    int major, minor;
    bool exact;  // for this minor version alone (`sm_90a`)
};

// An instance of the author's kernel that the rewrite stands for. `winner.h` has a table of them.
struct Served {
    const char* symbol;  // mangled
    const char* shown;   // as its author wrote it
    Image image;
    const Parameter* parameters;
    unsigned parameter_count;
    const char* const* kernels;  // symbol of each step
    unsigned step_count;
    const char* const* constants;  // symbols of the author's variables that the rewrite reads
    unsigned constant_count;
    bool (*plan)(Run&, const void* const*);

    std::atomic<unsigned long long> by_rewrite, by_author;
    std::atomic<const char*> reason;  // of the first launch by the author's kernel

    pthread_mutex_t lock;
    std::atomic<int> state;  // of the library below
    Library* library;
    Kernel* loaded[MOST_STEPS];
};
enum { NOT_LOADED, LOADED, NOT_LOADABLE };

// While another stream is captured, a thread may be forbidden to load or allocate anything, and
// trying ends that capture. In here it may: none of it is for the captured stream.
class WhileOthersAreCaptured {
public:
    explicit WhileOthersAreCaptured(const Driver& driver)
        : driver_(driver),
          exchanged_(driver.cuThreadExchangeStreamCaptureMode(&mode_) == SUCCESS) {}
    ~WhileOthersAreCaptured() {
        if (exchanged_) (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    }

private:
    const Driver& driver_;
    int mode_ = CAPTURE_MODE_RELAXED;
    const bool exchanged_;
};

// The launches of one plan: until the first of them, whatever goes wrong leaves the launch to the
// author's kernel.
class Run {
public:
    Run(const Driver& driver, const Launch& launch, Served& served)
        : driver_(driver), launch_(launch), served_(served) {}

    const char* why() const { return why_; }
    Result result() const { return result_; }

    Whole grid(unsigned axis) const { return static_cast<long long>(launch_.grid[axis]); }
    Whole block(unsigned axis) const { return static_cast<long long>(launch_.block[axis]); }
    Whole smem() const { return static_cast<long long>(launch_.smem); }

    bool holds(bool condition, const char* text) {
        return !undefined_value && condition ? true : refused(text);
    }

    bool needs(unsigned index, Whole bytes) {
        scratch_count_ = index + 1;
        scratch_bytes_[index] = bytes.value;
        scratch_sum_ += in_range(bytes, 1, MOST_SCRATCH_BYTES) ? bytes.value : MOST_SCRATCH_BYTES;
        return !undefined_value && scratch_sum_ <= MOST_SCRATCH_BYTES
                   ? in_range(bytes, 1, MOST_SCRATCH_BYTES) || refused("a size of scratch memory")
                   : refused("a size of scratch memory");
    }

    bool shaped(unsigned step, const Whole (&grid)[3], const Whole (&block)[3], Whole smem) {
        long long threads = 1;
        bool fits = !undefined_value && in_range(smem, 0, MOST_SHARED);
        for (unsigned axis = 0; axis < 3; ++axis) {
            fits = fits && in_range(grid[axis], 1, MOST_GRID[axis]) &&
                   in_range(block[axis], 1, MOST_BLOCK[axis]);
            if (!fits) return refused("the rewrite's grid, block or shared memory fits no device");
            threads *= block[axis].value;
            shapes_[step].grid[axis] = static_cast<unsigned>(grid[axis].value);
            shapes_[step].block[axis] = static_cast<unsigned>(block[axis].value);
        }
        shapes_[step].smem = static_cast<unsigned>(smem.value);
        shapes_[step].threads = static_cast<int>(threads);
        return threads <= MOST_THREADS || refused("the rewrite's block has too many threads");
    }

    // Whether whole clusters fill the grid, which the kernel has compiled in.
    bool clustered(unsigned step, unsigned x, unsigned y, unsigned z) {
        const unsigned (&grid)[3] = shapes_[step].grid;
        const bool whole = grid[0] % x == 0 && grid[1] % y == 0 && grid[2] % z == 0;
        return whole || refused("the rewrite's grid is no multiple of its clusters");
    }

    // Everything but the launches: kernels in this context, their limits, scratch memory, the
    // author's constants.
    bool begin() {
        const WhileOthersAreCaptured allowed(driver_);
        if (!load()) return refused("the rewrite's cubin could not be loaded");
        for (unsigned step = 0; step < served_.step_count; ++step)
            if (!prepare(step)) return refused("the rewrite's kernel cannot be launched like this");
        for (unsigned i = 0; i < served_.constant_count; ++i)
            if (!copy_constant(served_.constants[i]))
                return refused("a __constant__ variable of the program could not be read");
        for (unsigned i = 0; i < scratch_count_; ++i) {
            const size_t bytes = static_cast<size_t>(scratch_bytes_[i]);
            if (driver_.cuMemAllocAsync(&scratch_[i], bytes, launch_.our_stream()) != SUCCESS) {
                scratch_count_ = i;
                return abandoned("there was no scratch memory");
            }
        }
        return true;
    }

    Pointer scratch(unsigned index) const { return {scratch_[index], 1}; }

    // Whether every argument has a value.
    bool sound() {
        return undefined_value ? abandoned("an argument of the rewrite has no value") : true;
    }

    // What has begun cannot be taken back: where a later launch is refused, the program is told so.
    bool start(unsigned step, void** parameters) {
        const Shape& s = shapes_[step];
        const auto launch = reinterpret_cast<LaunchKernel*>(driver_.original[LAUNCH_KERNEL]);
        result_ = launch(functions_[step], s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1],
                         s.block[2], s.smem, launch_.our_stream(), parameters, nullptr);
        if (result_ == SUCCESS) return true;
        return abandoned("the driver refused the rewrite's launch");
    }

    bool finished() {
        free_scratch();
        return true;
    }

private:
    struct Shape {
        unsigned grid[3], block[3], smem;
        int threads;
    };

    static bool in_range(Whole number, long long least, long long most) {
        return number.value >= least && number.value <= most;
    }

    bool refused(const char* why) {
        why_ = why;
        return false;
    }

    bool abandoned(const char* why) {
        free_scratch();
        return refused(why);
    }

    void free_scratch() {
        if (scratch_count_ == 0) return;
        const WhileOthersAreCaptured allowed(driver_);
        for (unsigned i = 0; i < scratch_count_; ++i)
            (void)driver_.cuMemFreeAsync(scratch_[i], launch_.our_stream());
        scratch_count_ = 0;
    }

    // A CUlibrary is loaded once and is then in every context, later ones and those that are reset
    // among them, which a CUmodule kept per context would outlive without being told.
    bool load() {
        if (served_.state.load(std::memory_order_acquire) == NOT_LOADED) {
            pthread_mutex_lock(&served_.lock);
            if (served_.state.load(std::memory_order_relaxed) == NOT_LOADED)
                served_.state.store(load_library() ? LOADED : NOT_LOADABLE,
                                    std::memory_order_release);
            pthread_mutex_unlock(&served_.lock);
        }
        return served_.state.load(std::memory_order_acquire) == LOADED;
    }

    bool load_library() {
        bool loaded = driver_.cuLibraryLoadData(&served_.library, served_.image.bytes, nullptr,
                                                nullptr, 0, nullptr, nullptr, 0) == SUCCESS;
        for (unsigned step = 0; loaded && step < served_.step_count; ++step)
            loaded = driver_.cuLibraryGetKernel(&served_.loaded[step], served_.library,
                                                served_.kernels[step]) == SUCCESS;
        return loaded;
    }

    bool prepare(unsigned step) {
        Function*& function = functions_[step];
        int threads = 0;
        if (driver_.cuKernelGetFunction(&function, served_.loaded[step]) != SUCCESS ||
            driver_.cuFuncGetAttribute(&threads, MAX_THREADS_PER_BLOCK, function) != SUCCESS ||
            shapes_[step].threads > threads)
            return false;
        return shapes_[step].smem == 0 || allow_shared(function, shapes_[step].smem);
    }

    // Only ever raised: another thread may be about to launch with what it asked for.
    bool allow_shared(Function* function, unsigned bytes) {
        constexpr int attribute = MAX_DYNAMIC_SHARED_SIZE_BYTES;
        const int wanted = static_cast<int>(bytes);
        int allowed = 0;
        pthread_mutex_lock(&served_.lock);
        bool done = driver_.cuFuncGetAttribute(&allowed, attribute, function) == SUCCESS;
        if (done && allowed < wanted)
            done = driver_.cuFuncSetAttribute(function, attribute, wanted) == SUCCESS;
        pthread_mutex_unlock(&served_.lock);
        return done;
    }

    // The rewrite's cubin has a variable of its own where the author's program has one.
    bool copy_constant(const char* symbol) {
        Address ours = 0, theirs = 0;
        size_t bytes = 0, size = 0;
        if (driver_.cuLibraryGetGlobal(&ours, &bytes, served_.library, symbol) != SUCCESS ||
            !find_variable(driver_, launch_.function, symbol, &theirs, &size) || size != bytes)
            return false;
        return driver_.cuMemcpyDtoDAsync_v2(ours, theirs, bytes, launch_.our_stream()) == SUCCESS;
    }

    const Driver& driver_;
    const Launch& launch_;
    Served& served_;
    const char* why_ = "";
    Result result_ = SUCCESS;
    Shape shapes_[MOST_STEPS];
    Function* functions_[MOST_STEPS];
    unsigned scratch_count_ = 0;
    long long scratch_bytes_[MOST_SCRATCH];
    long long scratch_sum_ = 0;
    Address scratch_[MOST_SCRATCH];
};

}  // namespace cudaops
