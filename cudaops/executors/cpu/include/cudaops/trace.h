// Statistics over the memory accesses of sampled blocks, grouped the way an SM groups them.
//
// The caller reports every access of every thread of a block, in the order in which the emulator runs
// them (one thread after another between two barriers). This header regroups the 32 lanes of a warp
// into requests, counts what a request costs (sectors, lines, shared-memory wavefronts), replays the
// loads of the block's warps through an L1 of several sizes, and keeps the footprint of each block.
//
// Never include it in a unit that is itself instrumented.
#pragma once

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cudaops/trace_cache.h"
#include "cudaops/trace_request.h"

namespace cudaops::trace {

inline constexpr std::size_t kLanes = 32;
inline constexpr std::uint32_t kWidestAccess = 16;        // bytes of one instruction and thread
inline constexpr std::size_t kMaxStored = 1u << 13;   // accesses a thread keeps between two barriers
inline constexpr std::size_t kMaxAtomics = 1u << 16;   // addresses whose atomics are counted, a block
inline constexpr std::size_t kBusiestLines = 64;       // lines whose atomics a block reports
inline constexpr std::uint32_t kDenseEpochs = 24;      // intervals looked at one by one,
inline constexpr std::uint32_t kEpochRun = 12;         // then a run of so many (whole turns of a loop of
inline constexpr std::uint32_t kEpochStride = 8;       // 2, 3, 4 or 6 barriers) out of so many runs

// Everything known about one place in the code that touches memory.
struct Site {
    const void* pc = nullptr;
    Space space = Space::global;
    std::uint32_t size = 0;
    bool write = false, atomic = false;
    std::uint64_t accesses = 0;     // by threads, dropped ones included
    std::uint64_t kept = 0;         // by threads, those the figures below are made of
    std::uint64_t requests = 0;     // by warps
    double instructions = 0;        // requests after neighbours were joined into 8 or 16 byte ones
    std::uint64_t sectors = 0, lines = 0;
    std::uint64_t wavefronts = 0, ideal_wavefronts = 0;  // shared memory, as written
    double joined_wavefronts = 0, joined_ideal = 0;      // shared memory, neighbours joined
    std::uint64_t distinct_addresses = 0;                // a request, summed; global memory and atomics
    std::uint64_t worst_multiplicity = 0;                // atomics: lanes on the fullest address, summed
    std::array<std::uint64_t, kCacheSizes> hits{};       // load sectors found, one an L1 size
};

// What one sampled block touched of one allocation.
struct Footprint {
    std::vector<std::uint64_t> read, written;  // sector numbers, sorted, each once
};

// Atomics that meet in L2: a line takes the sectors of a request one by one, a sector its lanes that
// name one address.
struct AtomicLine {
    std::uint64_t line = 0;
    std::uint64_t serial = 0;   // operations one after another
    std::uint64_t hottest = 0;  // lanes that name its most used address
};

struct BlockRecord {
    std::uint64_t block = 0;
    std::uint32_t threads = 0, epochs = 0;
    std::map<int, Footprint> regions;
    std::vector<AtomicLine> atomics;  // the busiest lines of global memory
    std::uint64_t accesses = 0;       // by threads
    bool counted = true;              // false: only its footprint is kept, to lay it over another's
};

struct Region {
    std::uintptr_t base;
    std::size_t bytes;
    int index;
};

// The statistics of the blocks that one worker thread ran.
class Recorder {
  public:
    void begin_block(std::uint64_t block, std::uint32_t threads) {
        threads_.resize(threads);
        for (auto& t : threads_) t.clear();
        block_ = BlockRecord{};
        block_.block = block;
        block_.threads = threads;
        block_.counted = std::find(uncounted.begin(), uncounted.end(), block) == uncounted.end();
        epoch_ = 0;
        cache_.clear();
        atomics_.clear();
        lines_.clear();
    }

    void access(std::uint32_t thread, std::uint32_t epoch, Space space, std::uintptr_t address,
                std::uint32_t size, bool write, bool atomic, const void* pc) {
        if (!block_.counted) {
            for (auto s = address / kSectorBytes; space == Space::global && s <= (address + size - 1) / kSectorBytes; ++s)
                touch(s, write || atomic);
            return;
        }
        if (epoch != epoch_) {
            flush();
            epoch_ = epoch;
        }
        const std::uint32_t index = site(pc, space, size, write, atomic);
        ++sites_[index].accesses;
        ++block_.accesses;
        auto& stored = threads_[thread];
        if (stored.size() < kMaxStored && (looked_at(epoch) || !sites_[index].kept)) {
            stored.push_back({address, index});
        } else if (space == Space::global) {
            touch(address / kSectorBytes, write || atomic);
        }
    }

    void end_block() {
        flush();
        block_.epochs = epoch_ + 1;
        for (auto& [index, f] : block_.regions) {
            tidy(f.read);
            tidy(f.written);
        }
        keep_busiest_lines();
        blocks_.push_back(std::move(block_));
    }

    std::vector<Region> regions;
    std::vector<std::uint64_t> uncounted;
    const std::vector<Site>& sites() const { return sites_; }
    const std::vector<BlockRecord>& blocks() const { return blocks_; }

  private:
    struct Access {
        std::uintptr_t address;
        std::uint32_t site;
    };

    static bool looked_at(std::uint32_t epoch) {
        return epoch < kDenseEpochs || epoch / kEpochRun % kEpochStride == 0;
    }

    std::uint32_t site(const void* pc, Space space, std::uint32_t size, bool write, bool atomic) {
        const auto p = reinterpret_cast<std::uintptr_t>(pc);
        const std::uintptr_t key = (p << 12) ^ (static_cast<std::uintptr_t>(space) << 10) ^ (size << 2) ^
                                   (write ? 2u : 0u) ^ (atomic ? 1u : 0u);
        const std::size_t slot = (key ^ (key >> 17)) & (recent_.size() - 1);
        if (recent_[slot].first == key) return recent_[slot].second;
        auto [found, fresh] = index_.try_emplace(key, static_cast<std::uint32_t>(sites_.size()));
        if (fresh) {
            Site s;
            s.pc = pc;
            s.space = space;
            s.size = size;
            s.write = write;
            s.atomic = atomic;
            sites_.push_back(s);
        }
        recent_[slot] = {key, found->second};
        return found->second;
    }

    // The accesses of one warp between two barriers, as requests in the order of its first lanes.
    void gather(std::size_t warp, std::vector<Request>& requests) {
        requests.clear();
        order_.resize(sites_.size());
        for (auto& of_site : order_) of_site.clear();
        const std::size_t first = warp * kLanes;
        const std::size_t last = std::min(first + kLanes, threads_.size());
        for (std::size_t t = first; t < last; ++t) {
            seen_.assign(sites_.size(), 0);
            for (const Access& a : threads_[t]) {
                const std::uint32_t occurrence = seen_[a.site]++;
                auto& of_site = order_[a.site];
                if (occurrence == of_site.size()) {
                    of_site.push_back(static_cast<std::uint32_t>(requests.size()));
                    const Site& s = sites_[a.site];
                    requests.push_back(Request(a.site, s.space, s.size, s.write, s.atomic));
                }
                requests[of_site[occurrence]].add(static_cast<std::uint32_t>(t - first), a.address);
            }
        }
    }

    void flush() {
        const std::size_t warps = (threads_.size() + kLanes - 1) / kLanes;
        streams_.resize(warps);
        for (std::size_t w = 0; w < warps; ++w) {
            streams_[w].clear();
            gather(w, requests_);
            for (Request& r : requests_) count(r, w);
            joiner_.join(requests_, [this](const Request& r, double share, double wave, double ideal) {
                Site& s = sites_[r.site];
                s.instructions += share;
                s.joined_wavefronts += wave;
                s.joined_ideal += ideal;
            });
        }
        replay();
        for (auto& t : threads_) t.clear();
    }

    void count(const Request& r, std::size_t warp) {
        Site& s = sites_[r.site];
        ++s.requests;
        s.kept += r.lanes();
        if (r.atomic || r.space == Space::global) {
            const auto contention = r.contention();
            s.distinct_addresses += contention.distinct;
            s.worst_multiplicity += contention.worst;
        }
        if (r.atomic && r.space == Space::global && atomics_.size() < kMaxAtomics) contend(r);
        if (r.space == Space::shared) {
            const Wavefronts w = r.shared_wavefronts(r.size);
            s.wavefronts += w.actual;
            s.ideal_wavefronts += w.ideal;
            return;
        }
        if (r.space == Space::constant) {
            const std::uint32_t words = r.words();
            s.wavefronts += words;
            s.ideal_wavefronts += words;
            return;
        }
        SectorList sectors;
        r.sectors(sectors);
        s.sectors += sectors.count;
        s.lines += sectors.lines();
        for (std::size_t i = 0; i < sectors.count; ++i) touch(sectors.sector[i], r.write || r.atomic);
        if (!r.write && !r.atomic) streams_[warp].push_back({r.site, sectors});
    }

    void contend(const Request& r) {
        std::array<std::uintptr_t, kLanes> at;
        std::size_t n = 0;
        r.each([&](std::uintptr_t a) { ++atomics_[at[n++] = a]; });
        std::sort(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(n));
        std::uint64_t run = 0, worst = 0;
        for (std::size_t i = 0; i < n; ++i) {
            run = i && at[i] == at[i - 1] ? run + 1 : 1;
            worst = std::max(worst, run);
            if (i + 1 < n && at[i + 1] / kSectorBytes == at[i] / kSectorBytes) continue;
            lines_[at[i] / kLineBytes].serial += worst;
            worst = 0;
        }
    }

    void keep_busiest_lines() {
        for (const auto& [address, n] : atomics_) {
            auto& hottest = lines_[address / kLineBytes].hottest;
            hottest = std::max(hottest, n);
        }
        auto& kept = block_.atomics;
        for (auto& [number, line] : lines_) kept.push_back({number, line.serial, line.hottest});
        std::sort(kept.begin(), kept.end(),
                  [](const AtomicLine& a, const AtomicLine& b) { return a.serial > b.serial; });
        if (kept.size() > kBusiestLines) kept.resize(kBusiestLines);
    }

    void touch(std::uint64_t sector, bool written) {
        Footprint& f = block_.regions[region_of(sector * kSectorBytes)];
        auto& list = written ? f.written : f.read;
        if (!list.empty() && list.back() == sector) return;
        list.push_back(sector);
        if (list.size() >= (1u << 20) && list.size() == list.capacity()) tidy(list);
    }

    int region_of(std::uintptr_t address) {
        if (last_region_ < regions.size() && holds(regions[last_region_], address))
            return regions[last_region_].index;
        for (std::size_t i = 0; i < regions.size(); ++i)
            if (holds(regions[i], address)) {
                last_region_ = i;
                return regions[i].index;
            }
        return -1;
    }

    static bool holds(const Region& r, std::uintptr_t address) {
        return address + kSectorBytes > r.base && address < r.base + r.bytes;
    }

    static void tidy(std::vector<std::uint64_t>& list) {
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
    }

    // Warps take turns, one request each: what a round-robin scheduler makes of equal warps.
    void replay() {
        std::size_t longest = 0;
        for (const auto& s : streams_) longest = std::max(longest, s.size());
        for (std::size_t k = 0; k < longest; ++k)
            for (const auto& stream : streams_) {
                if (k >= stream.size()) continue;
                auto& hits = sites_[stream[k].site].hits;
                for (std::size_t i = 0; i < stream[k].sectors.count; ++i)
                    cache_.load(stream[k].sectors.sector[i], hits);
            }
    }

    struct Load {
        std::uint32_t site;
        SectorList sectors;
    };

    std::vector<std::vector<Access>> threads_;
    std::vector<std::vector<Load>> streams_;
    std::vector<Request> requests_;
    std::vector<std::vector<std::uint32_t>> order_;
    std::vector<std::uint32_t> seen_;
    std::vector<Site> sites_;
    std::vector<BlockRecord> blocks_;
    std::unordered_map<std::uintptr_t, std::uint32_t> index_;
    std::unordered_map<std::uintptr_t, std::uint64_t> atomics_;  // operations by address
    std::unordered_map<std::uint64_t, AtomicLine> lines_;
    std::array<std::pair<std::uintptr_t, std::uint32_t>, 256> recent_{};
    std::size_t last_region_ = 0;
    BlockRecord block_;
    std::uint32_t epoch_ = 0;
    Joiner joiner_;
    CacheLadder cache_;
};

// One recorder a worker thread; all are kept until the report.
struct Registry {
    std::mutex lock;
    std::vector<std::unique_ptr<Recorder>> recorders;
    std::vector<Region> regions;
    std::vector<std::uint64_t> uncounted;
};

inline Registry& registry() {
    static Registry* r = new Registry;
    return *r;
}

// Of the block that runs now: blocks of a cluster have one each, and take turns.
inline Recorder*& current_recorder() {
    thread_local Recorder* mine = nullptr;
    return mine;
}

inline Recorder& recorder() {
    Recorder*& mine = current_recorder();
    if (!mine) {
        std::lock_guard<std::mutex> hold(registry().lock);
        registry().recorders.push_back(std::make_unique<Recorder>());
        mine = registry().recorders.back().get();
        mine->regions = registry().regions;
        mine->uncounted = registry().uncounted;
    }
    return *mine;
}

// Tell where an allocation lies; before the first block. `index` is the workload's allocation index.
inline void region(int index, const void* base, std::size_t bytes) {
    registry().regions.push_back({reinterpret_cast<std::uintptr_t>(base), bytes, index});
}

// Of this block only the footprint is kept; before the first block.
inline void uncounted(std::uint64_t block) { registry().uncounted.push_back(block); }

// A sampled block starts on this worker; `block` is its linear index in the grid.
inline void begin_block(std::uint64_t block, std::uint32_t threads) {
    recorder().begin_block(block, threads);
}

// One access by one thread. `epoch` counts the barriers the thread has passed in this block. A copy of
// many bytes is several instructions, each as wide as its address allows.
inline void access(std::uint32_t thread, std::uint32_t epoch, Space space, std::uintptr_t address,
                   std::uint32_t size, bool write, bool atomic, const void* pc) {
    while (size > kWidestAccess) {
        std::uint32_t width = kWidestAccess;
        while (address % width) width /= 2;
        recorder().access(thread, epoch, space, address, width, write, atomic, pc);
        address += width, size -= width;
    }
    recorder().access(thread, epoch, space, address, size, write, atomic, pc);
}

inline void end_block() { recorder().end_block(); }


}  // namespace cudaops::trace
