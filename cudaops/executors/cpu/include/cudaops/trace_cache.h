// An L1 of several sizes at once, fed with the sectors of loads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace cudaops::trace {

inline constexpr std::uintptr_t kSectorBytes = 32;
inline constexpr std::uintptr_t kLineBytes = 128;
inline constexpr std::uint64_t kSectorsPerLine = 4;
inline constexpr std::size_t kCacheSizes = 7;
inline constexpr std::size_t kSmallestCacheBytes = 4096;  // then each is twice as large: 4 KiB to 256 KiB
inline constexpr std::size_t kWays = 16;

// Lines of four sectors, a sector is fetched on its own; least recently used line goes; sets by hash.
// Stores neither allocate nor evict (write-through), so only loads come here.
class Cache {
  public:
    explicit Cache(std::size_t bytes) : sets_(bytes / 128 / kWays), lines_(sets_ * kWays) {}

    void clear() {
        for (Line& l : lines_) l = Line{};
        clock_ = 0;
    }

    bool load(std::uint64_t sector) {
        const std::uint64_t tag = sector / kSectorsPerLine;
        const auto bit = static_cast<std::uint8_t>(1u << (sector % kSectorsPerLine));
        Line* set = &lines_[((tag * 0x9E3779B97F4A7C15ull) >> 40) % sets_ * kWays];
        Line* victim = set;
        ++clock_;
        for (std::size_t w = 0; w < kWays; ++w) {
            if (set[w].valid && set[w].tag == tag) {
                set[w].used = clock_;
                const bool hit = (set[w].valid & bit) != 0;
                set[w].valid |= bit;
                return hit;
            }
            if (set[w].used < victim->used) victim = &set[w];
        }
        *victim = Line{tag, clock_, bit};
        return false;
    }

  private:
    struct Line {
        std::uint64_t tag = 0;
        std::uint64_t used = 0;
        std::uint8_t valid = 0;  // one bit a sector; 0: empty
    };
    std::size_t sets_;
    std::vector<Line> lines_;
    std::uint64_t clock_ = 0;
};

class CacheLadder {
  public:
    CacheLadder() {
        for (std::size_t i = 0; i < kCacheSizes; ++i) caches_.emplace_back(kSmallestCacheBytes << i);
    }
    void clear() {
        for (Cache& c : caches_) c.clear();
    }
    void load(std::uint64_t sector, std::array<std::uint64_t, kCacheSizes>& hits) {
        for (std::size_t i = 0; i < kCacheSizes; ++i) hits[i] += caches_[i].load(sector);
    }

  private:
    std::vector<Cache> caches_;
};

}  // namespace cudaops::trace
