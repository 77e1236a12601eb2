// Device memory: every allocation ends at inaccessible pages and is framed by a pattern.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "machine.h"

namespace cudaops {

static Lasting<std::vector<Allocation>> lasting_allocations CUDAOPS_LASTING;
std::vector<Allocation>& allocations = lasting_allocations.value;
static uint64_t memory_generation = 1;
static int created = 0;
static uint64_t version = 1;

constexpr size_t guard_bytes = 1 << 20;   // inaccessible, on both sides
constexpr size_t granule = 256;           // cudaMalloc's alignment

uint64_t generation() { return memory_generation; }
void touch() { ++memory_generation; }
uint64_t allocations_version() { return version; }
void allocations_changed() { ++version; }

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static void fill_pattern(uintptr_t from, uintptr_t to) {
  for (uintptr_t a = from; a < to; ++a) *(unsigned char*)a = (unsigned char)(guard_pattern >> (8 * (a & 3)));
}

static uintptr_t first_difference(uintptr_t from, uintptr_t to) {
  for (uintptr_t a = from; a < to; ++a)
    if (*(unsigned char*)a != (unsigned char)(guard_pattern >> (8 * (a & 3)))) return a;
  return 0;
}

static uintptr_t band_begin(const Allocation& a) { return a.low + guard_bytes; }
static uintptr_t slack_end(const Allocation& a) { return a.high - guard_bytes; }

size_t host_bytes_available() {
  static const size_t total = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  size_t used = 0;
  for (auto& a : allocations) used += a.size;
  size_t budget = total / 10 * 8;
  return used < budget ? budget - used : 0;
}

Allocation* allocate(size_t size, Memory kind, int number, size_t shift) {
  if (size > host_bytes_available()) return nullptr;
  size_t data = round_up(size ? size : 1, granule) + shift, body = round_up(data, page) + page;
  void* map = mmap(nullptr, body + 2 * guard_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  Allocation a;
  a.low = (uintptr_t)map;
  a.high = a.low + body + 2 * guard_bytes;
  if (mprotect((void*)(a.low + guard_bytes), body, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, body + 2 * guard_bytes);
    return nullptr;
  }
  a.size = size;
  a.begin = slack_end(a) - data;
  a.kind = kind;
  a.number = kind == Memory::Device && number == -1 ? created++ : number;
  fill_pattern(band_begin(a), a.begin);
  fill_pattern(a.begin + size, slack_end(a));
  auto at = std::lower_bound(allocations.begin(), allocations.end(), a.begin,
                             [](const Allocation& x, uintptr_t begin) { return x.begin < begin; });
  touch();
  ++version;
  return &*allocations.insert(at, a);
}

bool release(uintptr_t begin) {
  for (auto i = allocations.begin(); i != allocations.end(); ++i)
    if (i->begin == begin) {
      munmap((void*)i->low, i->high - i->low);
      allocations.erase(i);
      touch();
      ++version;
      return true;
    }
  return false;
}

Allocation* allocation_around(uintptr_t address) {
  auto at = std::upper_bound(allocations.begin(), allocations.end(), address,
                             [](uintptr_t x, const Allocation& a) { return x < a.low; });
  if (at == allocations.begin()) return nullptr;
  --at;
  return address < at->high ? &*at : nullptr;
}

// The parameter that the faulty allocation was handed in as, for the message; -1: none.
static int parameter_of(const Call* call, const Allocation& a) {
  if (!call) return -1;
  for (int i = 0; i < call->count; ++i)
    if (call->types[i].kind == ArgumentKind::Pointer) {
      uintptr_t p = *(const uintptr_t*)call->values[i];
      if (p >= a.begin && p < a.begin + std::max<size_t>(a.size, 1)) return i;
    }
  return -1;
}

static void name_allocation(char* text, size_t size, const Call* call, const Allocation& a) {
  int parameter = parameter_of(call, a);
  if (parameter >= 0)
    snprintf(text, size, "allocation @P%d@ (size %zu bytes)", parameter, a.size);
  else
    snprintf(text, size, "allocation @A%d@ (size %zu bytes)", a.number, a.size);
}

void describe_place(char* text, size_t size, uintptr_t address, size_t bytes) {
  const Call* call = worker ? worker->call : nullptr;
  const Allocation* a = allocation_around(address);
  char name[160];
  if (address < 1 << 16) {
    snprintf(text, size, "through a null pointer (address %zu)", (size_t)address);
  } else if (!a) {
    snprintf(text, size, "at address 0x%zx, which belongs to no allocation", (size_t)address);
  } else {
    name_allocation(name, sizeof name, call, *a);
    if (address < a->begin)
      snprintf(text, size, "%zu bytes before the start of %s", (size_t)(a->begin - address), name);
    else if (address >= a->begin + a->size)
      snprintf(text, size, "%zu bytes past the end of %s", (size_t)(address - (a->begin + a->size)), name);
    else
      snprintf(text, size, "across the end of %s, %zu bytes past it", name,
               (size_t)(address + bytes - (a->begin + a->size)));
  }
}

void check_guards(const Call* call) {
  for (auto& a : allocations) {
    uintptr_t bad = first_difference(band_begin(a), a.begin);
    if (!bad) bad = first_difference(a.begin + a.size, slack_end(a));
    if (!bad) continue;
    char name[160];
    name_allocation(name, sizeof name, call, a);
    long long offset = (long long)bad - (long long)a.begin;
    if (call && lets_beyond()) {
      fill_pattern(band_begin(a), a.begin);
      fill_pattern(a.begin + a.size, slack_end(a));
      long long past = offset - (long long)a.size;
      if (beyond_told++) continue;  // a page that was opened has been told of, with its line
      report("warn\tout_of_bounds\t0\t0\t%s\twrite %lld bytes %s of %s", call->kernel,
             offset < 0 ? -offset : past, offset < 0 ? "before the start" : "past the end", name);
      continue;
    }
    if (offset < 0)
      stop("guard_overwritten", nullptr, "a byte %lld bytes before the start of %s was overwritten", -offset, name);
    stop("guard_overwritten", nullptr, "a byte %lld bytes past the end of %s was overwritten",
         offset - (long long)a.size, name);
  }
}

}  // namespace cudaops
