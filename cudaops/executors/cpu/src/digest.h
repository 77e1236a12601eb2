// A 128-bit digest of memory, for "did this launch change anything" and for naming contents.
// Two independent lanes of 64x64 -> 128 bit multiply-and-fold; not meant against an adversary.
#pragma once
#include <cstdint>
#include <cstring>

namespace cudaops {

struct Digest {
  uint64_t a = 0x9e3779b97f4a7c15ull, b = 0xc2b2ae3d27d4eb4full;
  bool operator==(const Digest& o) const { return a == o.a && b == o.b; }
};

static inline uint64_t fold(uint64_t x, uint64_t y) {
  unsigned __int128 product = (unsigned __int128)x * y;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline void digest_words(Digest& d, const uint64_t w[4]) {
  d.a = fold(d.a ^ w[0], w[1] ^ 0xa0761d6478bd642full) + fold(w[2] ^ 0xe7037ed1a0b428dbull, w[3] ^ d.a);
  d.b = fold(d.b ^ w[3], w[2] ^ 0x8ebc6af09c88c6e3ull) + fold(w[1] ^ 0x589965cc75374cc3ull, w[0] ^ d.b);
}

static inline void digest_bytes(Digest& d, const void* data, size_t size) {
  auto* p = static_cast<const unsigned char*>(data);
  uint64_t w[4];
  size_t left = size;
  for (; left >= 32; left -= 32, p += 32) {
    std::memcpy(w, p, 32);
    digest_words(d, w);
  }
  std::memset(w, 0, sizeof w);
  std::memcpy(w, p, left);
  digest_words(d, w);
  w[0] = size;
  digest_words(d, w);
}

}  // namespace cudaops
