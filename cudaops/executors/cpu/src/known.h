// What a thread knows of others' accesses: a number for each block and each thread of a launch, in a
// tree whose parts are shared between all that know the same. Whoever calls holds the lock of `races.cpp`.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cudaops {

struct KnownPart {
  static constexpr unsigned numbers = 32, children = 16;
  unsigned refs;
  union {
    KnownPart* child[children];
    uint32_t number[numbers];
  };
};

static unsigned known_levels = 0;  // of inner parts above the numbers; the same for a whole launch
static size_t known_parts = 0;     // that exist

static KnownPart* keep(KnownPart* part) {
  if (part) ++part->refs;
  return part;
}
static void drop(KnownPart* part, unsigned level) {
  if (!part || --part->refs) return;
  for (unsigned i = 0; level && i < KnownPart::children; ++i) drop(part->child[i], level - 1);
  delete part;
  --known_parts;
}
static KnownPart* copied(const KnownPart& from) {
  auto* part = new KnownPart(from);
  part->refs = 1;
  ++known_parts;
  return part;
}

// The larger number of each pair; one of the two where that is it already.
static KnownPart* joined(KnownPart* a, KnownPart* b, unsigned level) {
  if (!b || a == b) return keep(a);
  if (!a) return keep(b);
  KnownPart both;
  bool is_a = true, is_b = true;
  if (!level) {
    for (unsigned i = 0; i < KnownPart::numbers; ++i) {
      both.number[i] = std::max(a->number[i], b->number[i]);
      is_a &= both.number[i] == a->number[i], is_b &= both.number[i] == b->number[i];
    }
  } else {
    for (unsigned i = 0; i < KnownPart::children; ++i) {
      both.child[i] = joined(a->child[i], b->child[i], level - 1);
      is_a &= both.child[i] == a->child[i], is_b &= both.child[i] == b->child[i];
    }
    for (unsigned i = 0; (is_a || is_b) && i < KnownPart::children; ++i) drop(both.child[i], level - 1);
  }
  return is_a ? keep(a) : is_b ? keep(b) : copied(both);
}

class Known {
 public:
  Known() = default;
  Known(const Known& other) : root_(keep(other.root_)) {}
  Known(Known&& other) : root_(std::exchange(other.root_, nullptr)) {}
  Known& operator=(Known other) {
    std::swap(root_, other.root_);
    return *this;
  }
  ~Known() { drop(root_, known_levels); }

  // Room for so many numbers from now on; nothing that is known may be left.
  static void prepare(uint64_t count) {
    known_levels = 0;
    for (uint64_t room = KnownPart::numbers; room < count; room *= KnownPart::children) ++known_levels;
  }
  bool empty() const { return !root_; }
  void join(const Known& other) {
    KnownPart* both = joined(root_, other.root_, known_levels);
    drop(std::exchange(root_, both), known_levels);
  }
  // So many numbers from this index on, no further than the next multiple of 32.
  void raise(uint64_t index, const uint32_t* numbers, unsigned count) {
    KnownPart part{};
    for (unsigned i = 0; i < count; ++i) part.number[index % KnownPart::numbers + i] = numbers[i];
    Known other;
    other.root_ = copied(part);
    uint64_t place = index / KnownPart::numbers;
    for (unsigned level = 0; level < known_levels; ++level, place /= KnownPart::children) {
      KnownPart above{};
      above.child[place % KnownPart::children] = other.root_;
      other.root_ = copied(above);
    }
    join(other);
  }
  uint32_t at(uint64_t index) const {
    const KnownPart* part = root_;
    uint64_t place = index / KnownPart::numbers;
    for (unsigned level = known_levels; part && level-- > 0;)
      part = part->child[place >> 4 * level & (KnownPart::children - 1)];
    return part ? part->number[index % KnownPart::numbers] : 0;
  }

 private:
  KnownPart* root_ = nullptr;
};

}  // namespace cudaops
