// The report: tab-separated lines, one fact each, and files of contents that are named by what is in
// them. Read by cudaops.executors.capture.report, which believes none of it.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "digest.h"

namespace cudaops_capture {

inline const char* option(const char* name) {
  const char* value = getenv(name);
  return value && *value ? value : nullptr;
}

inline std::string line(const char* format, ...) __attribute__((format(printf, 1, 2)));
inline std::string line(const char* format, ...) {
  char text[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text - 1, format, list);
  va_end(list);
  for (char* c = text; *c; ++c)
    if (*c == '\n' || *c == '\r') *c = ' ';
  return std::string(text) + "\n";
}

class Report {
 public:
  void open(const char* path) { file_ = fopen(path, "ae"); }
  bool is_open() const { return file_ != nullptr; }

  void write(const std::string& lines) {
    if (!file_) return;
    if (fwrite(lines.data(), 1, lines.size(), file_) != lines.size() || fflush(file_) != 0) _Exit(87);
  }

  // The recorder itself cannot go on; the program is ended, since what it would leave is worthless.
  [[noreturn]] void give_up(const char* what, const char* why) {
    write(line("fault\tinfrastructure\t0\t\t%s: %s", what, why));
    _Exit(86);
  }

 private:
  FILE* file_ = nullptr;
};

// Contents of device memory on their way into files. Larger ones come in pieces through page-locked
// memory: while one piece crosses, other threads take the digest of those before it and write them.
class Contents {
 public:
  explicit Contents(Report& report) : report_(report) {}
  void keep_in(const char* folder) { folder_ = folder; }
  bool is_on() const { return !folder_.empty(); }
  unsigned long long written() const { return written_; }

  // The name of the file that holds these contents now; empty where they cannot be read, with `error`.
  // What is known already is read once and not written, which an unchanged buffer is after its launch;
  // where nothing of that size is kept there is nothing to compare with.
  std::string store(uintptr_t address, size_t size, cudaError_t& error) {
    Bytes wanted{address, size};
    if (kept_sizes_.count(size)) {
      cudaops::Digest known = read(wanted, -1, error);
      if (error != cudaSuccess) return std::string();
      std::string name = named(known, size);
      if (kept_.count(name)) return name;
    }
    std::string part = folder_ + "/part";
    int file = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) report_.give_up("cannot write the capture", strerror(errno));
    cudaops::Digest digest = read(wanted, file, error);
    bool whole = ftruncate(file, (off_t)size) == 0;  // what is zero was not written
    if (close(file) != 0 || !whole) report_.give_up("cannot write the capture", strerror(errno));
    if (error != cudaSuccess) return remove(part.c_str()), std::string();
    std::string name = named(digest, size);  // as written: somebody may write to managed memory all the time
    if (rename(part.c_str(), (folder_ + "/" + name).c_str()) != 0)
      report_.give_up("cannot write the capture", strerror(errno));
    kept_.insert(name);
    kept_sizes_.insert(size);
    written_ += size;
    return name;
  }

  // The runtime was reset: its stream and page-locked memory are no more.
  void forget() {
    for (Piece& piece : pieces_) piece = Piece{};
    stream_ = nullptr;
  }

 private:
  static constexpr size_t chunk = 16 << 20;
  static constexpr int threads = 4, most_pieces = threads + 2;
  struct Bytes {
    uintptr_t address;
    size_t size;
  };
  // A part of the contents on its way; `ready` tells when it has crossed.
  struct Piece {
    char* data = nullptr;
    cudaEvent_t ready = nullptr;
    size_t number = 0, size = 0;
    bool busy = false;
  };

  static std::string named(const cudaops::Digest& digest, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "%016llx%016llx-%zu", (unsigned long long)digest.a, (unsigned long long)digest.b, size);
    return name;
  }

  // The digest of the digests of all pieces. `file`: takes what is not zero; -1: none does.
  cudaops::Digest read(const Bytes& from, int file, cudaError_t& error) {
    size_t pieces = (from.size + chunk - 1) / chunk;
    std::vector<cudaops::Digest> digests(pieces);
    error = pieces < 2 ? read_at_once(from, file, digests) : read_in_pieces(from, file, digests);
    cudaops::Digest whole;
    cudaops::digest_bytes(whole, digests.data(), digests.size() * sizeof(cudaops::Digest));
    return whole;
  }

  cudaError_t read_at_once(const Bytes& from, int file, std::vector<cudaops::Digest>& digests) {
    if (!from.size) return cudaSuccess;
    small_.resize(from.size);
    cudaError_t error = cudaMemcpy(small_.data(), (const void*)from.address, from.size, cudaMemcpyDefault);
    if (error == cudaSuccess) taken(small_.data(), from.size, 0, file, digests[0]);
    return error;
  }

  cudaError_t read_in_pieces(const Bytes& from, int file, std::vector<cudaops::Digest>& digests) {
    if (cudaError_t error = prepare()) return error;
    std::deque<Piece*> crossed;
    bool last = false;
    auto work = [&] {
      std::unique_lock<std::mutex> hold(pieces_lock_);
      while (true) {
        changed_.wait(hold, [&] { return last || !crossed.empty(); });
        if (crossed.empty()) return;
        Piece* piece = crossed.front();
        crossed.pop_front();
        hold.unlock();
        taken(piece->data, piece->size, (off_t)(piece->number * chunk), file, digests[piece->number]);
        hold.lock();
        piece->busy = false;
        changed_.notify_all();
      }
    };
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) workers.emplace_back(work);
    cudaError_t error = cudaSuccess;
    Piece* crossing = nullptr;
    auto hand_over = [&] {
      if (crossing && error == cudaSuccess) error = cudaEventSynchronize(crossing->ready);
      std::lock_guard<std::mutex> hold(pieces_lock_);
      if (crossing && error == cudaSuccess) crossed.push_back(crossing);
      else if (crossing) crossing->busy = false;
      changed_.notify_all();
    };
    for (size_t number = 0; number < digests.size() && error == cudaSuccess; ++number) {
      Piece* next = free_piece();
      next->number = number;
      next->size = std::min(chunk, from.size - number * chunk);
      error = cudaMemcpyAsync(next->data, (const void*)(from.address + number * chunk), next->size, cudaMemcpyDefault, stream_);
      if (error == cudaSuccess) error = cudaEventRecord(next->ready, stream_);
      hand_over();
      crossing = next;
    }
    hand_over();
    {
      std::lock_guard<std::mutex> hold(pieces_lock_);
      last = true;
    }
    changed_.notify_all();
    for (std::thread& one : workers) one.join();
    return error;
  }

  Piece* free_piece() {
    std::unique_lock<std::mutex> hold(pieces_lock_);
    Piece* found = nullptr;
    changed_.wait(hold, [&] {
      for (Piece& piece : pieces_)
        if (!piece.busy) return found = &piece, true;
      return false;
    });
    found->busy = true;
    return found;
  }

  cudaError_t prepare() {
    if (!stream_)
      if (cudaError_t error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) return error;
    for (Piece& piece : pieces_) {
      piece.busy = false;
      if (!piece.data)
        if (cudaError_t error = cudaHostAlloc((void**)&piece.data, chunk, cudaHostAllocDefault)) return error;
      if (!piece.ready)
        if (cudaError_t error = cudaEventCreateWithFlags(&piece.ready, cudaEventDisableTiming)) return error;
    }
    return cudaSuccess;
  }

  // A piece has come: its digest, and its bytes into the file unless all are zero.
  void taken(const char* data, size_t size, off_t at, int file, cudaops::Digest& digest) {
    cudaops::digest_bytes(digest, data, size);
    if (file < 0 || (!data[0] && !memcmp(data, data + 1, size - 1))) return;
    while (size) {
      ssize_t done = pwrite(file, data, size, at);
      if (done <= 0) report_.give_up("cannot write the capture", done ? strerror(errno) : "nothing was written");
      data += done, at += done, size -= (size_t)done;
    }
  }

  Report& report_;
  std::string folder_;
  std::vector<char> small_;
  Piece pieces_[most_pieces];
  std::mutex pieces_lock_;
  std::condition_variable changed_;
  cudaStream_t stream_ = nullptr;
  std::set<std::string> kept_;
  std::set<size_t> kept_sizes_;
  unsigned long long written_ = 0;
};

}  // namespace cudaops_capture
