// What a kernel gets of `malloc` and `new`: an access past it is found where it is made. A part of the
// instrumented builds alone (--wrap).
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "machine.h"

extern "C" {
void* __real_malloc(size_t size);
void __real_free(void* piece);
void cudaops_code_begin();
void cudaops_code_end();
}

namespace cudaops {

// Memory that is itself no piece.
template <class T>
struct Apart {
  using value_type = T;
  Apart() = default;
  template <class U> Apart(const Apart<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(__real_malloc(count * sizeof(T))); }
  void deallocate(T* at, size_t) { __real_free(at); }
  template <class U> bool operator==(const Apart<U>&) const { return true; }
  template <class U> bool operator!=(const Apart<U>&) const { return false; }
};
struct Piece {
  size_t size, room;  // as it was asked for, and up to what the library gave next
};
using Pieces = std::map<uintptr_t, Piece, std::less<uintptr_t>, Apart<std::pair<const uintptr_t, Piece>>>;

static std::mutex pieces_lock;
static std::atomic<bool> any_pieces{false};
static Pieces& pieces() {
  static auto* all = new (__real_malloc(sizeof(Pieces))) Pieces;
  return *all;
}

// The machine asks for memory in a kernel too, and reads that.
static bool is_author(const void* pc) {
  return (uintptr_t)pc >= (uintptr_t)&cudaops_code_begin && (uintptr_t)pc < (uintptr_t)&cudaops_code_end;
}

static void* noted(void* piece, size_t size, const void* pc) {
  if (!piece || !worker || !worker->in_kernel || !is_author(pc)) return piece;
  std::lock_guard<std::mutex> hold(pieces_lock);
  // Those that a library ended unseen are in its place.
  auto begin = (uintptr_t)piece;
  auto first = pieces().lower_bound(begin);
  pieces().erase(first, pieces().lower_bound(begin + (size ? size : 1)));
  pieces()[begin] = {size, malloc_usable_size(piece) + sizeof(size_t)};
  any_pieces = true;
  return piece;
}
static void forget(void* piece) {
  if (!any_pieces) return;
  std::lock_guard<std::mutex> hold(pieces_lock);
  pieces().erase((uintptr_t)piece);
}

// Bytes of the piece that the access leaves, with nothing of the program's between; 0 where it leaves none.
size_t left_piece(uintptr_t address, size_t bytes, const void* pc) {
  if (!any_pieces || !is_author(pc)) return 0;
  std::lock_guard<std::mutex> hold(pieces_lock);
  auto after = pieces().upper_bound(address);
  if (after == pieces().begin()) return 0;
  auto [begin, piece] = *std::prev(after);
  return address + bytes > begin + piece.size && address < begin + piece.room ? piece.size : 0;
}

}  // namespace cudaops

#define CUDAOPS_MAKES(name) \
  void* __real_##name(size_t size); \
  void* __wrap_##name(size_t size) { \
    return cudaops::noted(__real_##name(size), size, __builtin_return_address(0)); \
  }
#define CUDAOPS_ENDS(name) \
  void __real_##name(void* piece); \
  void __wrap_##name(void* piece) { cudaops::forget(piece), __real_##name(piece); }
#define CUDAOPS_ENDS_SIZED(name) \
  void __real_##name(void* piece, size_t size); \
  void __wrap_##name(void* piece, size_t size) { cudaops::forget(piece), __real_##name(piece, size); }
extern "C" {
CUDAOPS_MAKES(malloc)
CUDAOPS_MAKES(_Znwm)
CUDAOPS_MAKES(_Znam)
CUDAOPS_ENDS(free)
CUDAOPS_ENDS(_ZdlPv)
CUDAOPS_ENDS(_ZdaPv)
CUDAOPS_ENDS_SIZED(_ZdlPvm)
CUDAOPS_ENDS_SIZED(_ZdaPvm)
}
