// The report: tab-separated lines, one fact each, and files of contents that are named by what is in
// them. Read by cudaops.executors.capture.report, which believes none of it.
#pragma once
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

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

// Contents of device memory on their way into files.
class Contents {
 public:
  explicit Contents(Report& report) : report_(report) {}
  void keep_in(const char* folder) { folder_ = folder; }
  bool is_on() const { return !folder_.empty(); }
  unsigned long long written() const { return written_; }

  // The name of the file that holds these contents now; empty where they cannot be read, with `error`.
  std::string store(uintptr_t address, size_t size, cudaError_t& error) {
    if (!buffer_) buffer_.reset(new char[chunk]);
    std::string part = folder_ + "/part";
    FILE* file = fopen(part.c_str(), "wbe");
    if (!file) report_.give_up("cannot write the capture", strerror(errno));
    cudaops::Digest digest;
    for (size_t done = 0; done < size;) {
      size_t now = size - done < chunk ? size - done : chunk;
      error = cudaMemcpy(buffer_.get(), (const void*)(address + done), now, cudaMemcpyDefault);
      if (error != cudaSuccess) return fclose(file), remove(part.c_str()), std::string();
      cudaops::digest_bytes(digest, buffer_.get(), now);
      if (fwrite(buffer_.get(), 1, now, file) != now) report_.give_up("cannot write the capture", strerror(errno));
      done += now;
    }
    if (fclose(file) != 0) report_.give_up("cannot write the capture", strerror(errno));
    return place(part, digest, size);
  }

 private:
  static constexpr size_t chunk = 16 << 20;

  std::string place(const std::string& part, const cudaops::Digest& digest, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "%016llx%016llx-%zu", (unsigned long long)digest.a, (unsigned long long)digest.b, size);
    std::string path = folder_ + "/" + name;
    if (FILE* known = fopen(path.c_str(), "rbe")) {
      fclose(known);
      remove(part.c_str());
    } else {
      if (rename(part.c_str(), path.c_str()) != 0) report_.give_up("cannot write the capture", strerror(errno));
      written_ += size;
    }
    return name;
  }

  Report& report_;
  std::string folder_;
  std::unique_ptr<char[]> buffer_;
  unsigned long long written_ = 0;
};

}  // namespace cudaops_capture
