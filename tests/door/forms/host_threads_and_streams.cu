// Each host thread owns a worker with two CUDA streams (double buffering);
// chunks are handed out statically so the result is reproducible.
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cu {

struct error : std::runtime_error {
  cudaError_t code;
  error(cudaError_t c, const char* what) : std::runtime_error(std::string(what) + " failed: " + cudaGetErrorString(c)), code(c) {}
};

inline void enforce(cudaError_t c, const char* what) { if (c != cudaSuccess) throw error(c, what); }
#define ENFORCE(call) ::cu::enforce((call), #call)

class stream {
  cudaStream_t s_{};
 public:
  stream() { ENFORCE(cudaStreamCreateWithFlags(&s_, cudaStreamNonBlocking)); }
  ~stream() { if (s_) cudaStreamDestroy(s_); }
  stream(stream&& o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
  stream& operator=(stream&&) = delete;
  operator cudaStream_t() const { return s_; }
  void sync() const { ENFORCE(cudaStreamSynchronize(s_)); }
};

struct device_free { void operator()(void* p) const { cudaFree(p); } };
struct host_free { void operator()(void* p) const { cudaFreeHost(p); } };
template <class T> using device_ptr = std::unique_ptr<T[], device_free>;
template <class T> using pinned_ptr = std::unique_ptr<T[], host_free>;

template <class T> device_ptr<T> make_device(std::size_t n) {
  void* p; ENFORCE(cudaMalloc(&p, n * sizeof(T))); return device_ptr<T>(static_cast<T*>(p));
}
template <class T> pinned_ptr<T> make_pinned(std::size_t n) {
  T* p; ENFORCE(cudaHostAlloc(&p, n * sizeof(T), cudaHostAllocDefault)); return pinned_ptr<T>(p);
}
}  // namespace cu

constexpr int kChunk = 1500, kChunks = 24, kThreads = 3;

__host__ __device__ constexpr std::uint32_t scramble(std::uint32_t x) {
  x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ (x >> 16);
}

__global__ void scrambleChunk(std::uint32_t* d, int n, std::uint32_t salt) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    d[i] = scramble(d[i] ^ salt);
}

__global__ void sumChunk(const std::uint32_t* d, int n, unsigned long long* out) {
  unsigned long long mine = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) mine += d[i];
  atomicAdd(out, mine);  // *out was cleared on the same stream
}

class Worker {
  struct Slot {
    cu::stream s;
    cu::device_ptr<std::uint32_t> d = cu::make_device<std::uint32_t>(kChunk);
    cu::device_ptr<unsigned long long> sum = cu::make_device<unsigned long long>(1);
    cu::pinned_ptr<std::uint32_t> h = cu::make_pinned<std::uint32_t>(kChunk);
    cu::pinned_ptr<unsigned long long> hsum = cu::make_pinned<unsigned long long>(1);
    bool busy = false;
  };
  std::array<Slot, 2> slots_;
  std::atomic<int>& callbacks_;
  unsigned long long total_ = 0;

  void drain(Slot& x) {
    if (!x.busy) return;
    x.s.sync();
    total_ += *x.hsum.get();
    x.busy = false;
  }

 public:
  explicit Worker(std::atomic<int>& cb) : callbacks_(cb) {}

  unsigned long long run(int first, int step) {
    for (int c = first, turn = 0; c < kChunks; c += step, turn ^= 1) {
      Slot& x = slots_[turn];
      drain(x);
      for (int i = 0; i < kChunk; ++i) x.h[i] = std::uint32_t(c * kChunk + i);
      ENFORCE(cudaMemcpyAsync(x.d.get(), x.h.get(), kChunk * sizeof(std::uint32_t), cudaMemcpyHostToDevice, x.s));
      ENFORCE(cudaMemsetAsync(x.sum.get(), 0, sizeof(unsigned long long), x.s));
      scrambleChunk<<<4, 128, 0, x.s>>>(x.d.get(), kChunk, std::uint32_t(c));
      sumChunk<<<1, 96, 0, x.s>>>(x.d.get(), kChunk, x.sum.get());
      ENFORCE(cudaGetLastError());
      ENFORCE(cudaMemcpyAsync(x.hsum.get(), x.sum.get(), sizeof(unsigned long long), cudaMemcpyDeviceToHost, x.s));
      ENFORCE(cudaLaunchHostFunc(x.s, [](void* p) { ++*static_cast<std::atomic<int>*>(p); }, &callbacks_));
      x.busy = true;
    }
    for (auto& x : slots_) drain(x);
    return total_;
  }
};

int main() {
  std::atomic<int> callbacks{0};
  std::mutex m;
  unsigned long long grand = 0;
  std::exception_ptr failure;

  auto body = [&](int id, const char* /*name*/) {
    try {
      ENFORCE(cudaSetDevice(0));
      Worker w(callbacks);
      const auto part = w.run(id, kThreads);
      std::lock_guard<std::mutex> lock(m);
      grand += part;
    } catch (...) {
      std::lock_guard<std::mutex> lock(m);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  for (int t = 0; t < kThreads; ++t) pool.emplace_back(body, t, "worker");
  for (auto& t : pool) t.join();
  if (failure) {
    try { std::rethrow_exception(failure); } catch (const std::exception& e) { std::fprintf(stderr, "%s\n", e.what()); }
    return 3;
  }
  unsigned long long want = 0;
  for (int c = 0; c < kChunks; ++c)
    for (int i = 0; i < kChunk; ++i) want += scramble(std::uint32_t(c * kChunk + i) ^ std::uint32_t(c));
  const bool ok = want == grand && callbacks == kChunks;
  std::printf("threads=%d chunks=%d callbacks=%d total=%llu %s\n", kThreads, kChunks, callbacks.load(), grand, ok ? "match" : "MISMATCH");
  return ok ? 0 : 1;
}
