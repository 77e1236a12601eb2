// One memory instruction of one warp: 32 addresses and what they cost.
#pragma once
#include "macros_off.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cudaops/trace_cache.h"

namespace cudaops::trace {

enum class Space : std::uint8_t { global = 0, shared = 1, constant = 2 };

struct Wavefronts {
    std::uint32_t actual = 0;
    std::uint32_t ideal = 0;  // without bank conflicts
};

struct Contention {
    std::uint32_t distinct = 0;
    std::uint32_t worst = 0;
};

// Distinct sectors of a request, ascending. 32 lanes of at most 16 bytes touch at most 64.
struct SectorList {
    std::array<std::uint64_t, 64> sector;
    std::size_t count = 0;

    std::uint32_t lines() const {
        std::uint32_t n = 0;
        for (std::size_t i = 0; i < count; ++i)
            n += i == 0 || sector[i] / kSectorsPerLine != sector[i - 1] / kSectorsPerLine;
        return n;
    }
};

class Request {
  public:
    Request(std::uint32_t site, Space space, std::uint32_t size, bool write, bool atomic)
        : site(site), size(size), space(space), write(write), atomic(atomic) {}

    void add(std::uint32_t lane, std::uintptr_t address) {
        if (!mask) low = address & 15;
        aligned = aligned && (address & 15) == low;
        half_aligned = half_aligned && (address & 7) == (low & 7);
        mask |= 1u << lane;
        at[lane] = address;
    }

    std::uint32_t lanes() const { return static_cast<std::uint32_t>(__builtin_popcount(mask)); }

    template <class F>
    void each(F f) const {
        for (std::uint32_t m = mask; m; m &= m - 1) f(at[__builtin_ctz(m)]);
    }

    void sectors(SectorList& out) const {
        out.count = 0;
        std::uint64_t previous = ~0ull;
        bool sorted = true;
        each([&](std::uintptr_t a) {
            const std::uint64_t last = (a + size - 1) / kSectorBytes;
            for (std::uint64_t s = a / kSectorBytes; s <= last && out.count < out.sector.size(); ++s) {
                if (s == previous) continue;
                sorted = sorted && (previous == ~0ull || s > previous);
                out.sector[out.count++] = previous = s;
            }
        });
        if (sorted) return;
        const auto end = out.sector.begin() + static_cast<std::ptrdiff_t>(out.count);
        std::sort(out.sector.begin(), end);
        out.count = static_cast<std::size_t>(std::unique(out.sector.begin(), end) - out.sector.begin());
    }

    std::uint32_t distinct() const { return contention().distinct; }

    Contention contention() const {
        std::array<std::uintptr_t, 32> a;
        std::size_t n = 0;
        each([&](std::uintptr_t x) { a[n++] = x; });
        const auto end = a.begin() + static_cast<std::ptrdiff_t>(n);
        if (!std::is_sorted(a.begin(), end)) std::sort(a.begin(), end);
        Contention c;
        std::uint32_t run = 0;
        for (std::size_t i = 0; i < n; ++i) {
            run = i && a[i] == a[i - 1] ? run + 1 : 1;
            c.distinct += run == 1;
            c.worst = std::max(c.worst, run);
        }
        return c;
    }

    // Words of 4 bytes that some lane asks for: the constant cache gives one after another.
    std::uint32_t words() const {
        std::array<std::uintptr_t, 32> a;
        std::size_t n = 0;
        each([&](std::uintptr_t x) { a[n++] = x / 4; });
        const auto end = a.begin() + static_cast<std::ptrdiff_t>(n);
        std::sort(a.begin(), end);
        return static_cast<std::uint32_t>(std::unique(a.begin(), end) - a.begin());
    }

    // 32 banks of 4 bytes, one word a bank and wavefront, equal words are broadcast. 8 byte accesses go
    // by half warps and 16 byte ones by quarters, unless neighbouring lanes share their addresses:
    // then twice as many lanes go at once. Checked against tests/data/ncu (reg64: 4 wavefronts for 16
    // distinct 16 byte words twice over, 2 for one such word a half warp).
    Wavefronts shared_wavefronts(std::uint32_t width) const {
        if (width <= 4) return transaction(0, 32, width);
        const bool paired = neighbours_share();
        const std::uint32_t group = width <= 8 ? (paired ? 32 : 16) : (paired ? 16 : 8);
        Wavefronts sum;
        for (std::uint32_t first = 0; first < 32; first += group) {
            const Wavefronts w = transaction(first, group, width);
            sum.actual += w.actual;
            sum.ideal += w.ideal;
        }
        return sum;
    }

    std::uint32_t site;
    std::uint32_t size;
    std::uint32_t mask = 0;
    Space space;
    bool write, atomic;
    bool aligned = true;      // all lanes stand at the same offset of a 16 byte word,
    bool half_aligned = true; // of an 8 byte word
    std::uintptr_t low = 0;   // that offset
    std::array<std::uintptr_t, 32> at;

  private:
    bool neighbours_share() const {
        for (const std::uint32_t step : {1u, 2u}) {
            bool all = true;
            for (std::uint32_t lane = 0; lane < 32 && all; ++lane) {
                const std::uint32_t other = lane ^ step;
                const bool both = (mask >> lane & 1u) && (mask >> other & 1u);
                all = !both || at[lane] / 16 == at[other] / 16;
            }
            if (all) return true;
        }
        return false;
    }

    Wavefronts transaction(std::uint32_t first, std::uint32_t group, std::uint32_t width) const {
        std::array<std::uint8_t, 32> depth{};
        std::array<std::uintptr_t, 32 * 4> word;
        std::size_t n = 0;
        for (std::uint32_t lane = first; lane < first + group; ++lane) {
            if (!(mask >> lane & 1u)) continue;
            for (std::uint32_t b = 0; b < std::max(width, 4u); b += 4) word[n++] = (at[lane] + b) / 4;
        }
        if (n == 0) return {};
        const auto end = word.begin() + static_cast<std::ptrdiff_t>(n);
        if (!std::is_sorted(word.begin(), end)) std::sort(word.begin(), end);
        std::uint32_t worst = 0;
        for (std::size_t i = 0; i < n; ++i)
            if (i == 0 || word[i] != word[i - 1])
                worst = std::max<std::uint32_t>(worst, ++depth[word[i] % 32]);
        return {worst, 1};
    }
};

// Finds requests of one warp that a compiler would join into one 8 or 16 byte instruction: same lanes,
// same 16 byte words, side by side, all lanes at the same offset of their word. In global memory words
// of 8 bytes too: neighbouring lanes of a `float2` array stand at different offsets of 16 bytes.
class Joiner {
  public:
    // `emit(request, instructions, wavefronts, ideal)` gets each request's share of what is left.
    template <class Emit>
    void join(const std::vector<Request>& requests, Emit emit) {
        open_.clear();
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const Request& r = requests[i];
            const std::uint32_t word = word_of(r);
            if (r.atomic || r.size >= word || r.mask == 0) {
                one(r, emit);
                continue;
            }
            const std::uintptr_t key =
                first_word(r, word) * 16 + (word == 8) * 8 + static_cast<unsigned>(r.space) * 2 + r.write;
            auto found = open_.find(key);
            if (found != open_.end() && i - found->second.start <= kWindow && fits(found->second, r, requests)) {
                found->second.member[found->second.n++] = i;
                continue;
            }
            if (found != open_.end()) close(found->second, requests, emit);
            Group g;
            g.start = i;
            g.n = 1;
            g.word = word;
            g.member[0] = i;
            open_[key] = g;
        }
        for (auto& [key, g] : open_) close(g, requests, emit);
    }

  private:
    static constexpr std::size_t kWindow = 256;  // requests
    struct Group {
        std::size_t start = 0, n = 0;
        std::uint32_t word = 16;
        std::array<std::size_t, 16> member{};
    };

    // How many bytes the words have in which all lanes stand alike; 0: they do not.
    static std::uint32_t word_of(const Request& r) {
        if (r.aligned) return 16;
        return r.half_aligned && r.space == Space::global ? 8 : 0;
    }

    static std::uintptr_t first_word(const Request& r, std::uint32_t word) {
        return r.at[__builtin_ctz(r.mask)] / word;
    }

    static bool fits(const Group& g, const Request& r, const std::vector<Request>& all) {
        const Request& a = all[g.member[0]];
        if (g.n == 16 || a.mask != r.mask || a.size != r.size) return false;
        for (std::size_t m = 0; m < g.n; ++m)
            if (all[g.member[m]].low % g.word == r.low % g.word || all[g.member[m]].site == r.site) return false;
        for (std::uint32_t m = r.mask; m; m &= m - 1) {
            const int lane = __builtin_ctz(m);
            if (a.at[lane] / g.word != r.at[lane] / g.word) return false;
        }
        return true;
    }

    template <class Emit>
    void one(const Request& r, Emit& emit) {
        const Wavefronts w = r.space == Space::shared ? r.shared_wavefronts(r.size) : Wavefronts{};
        emit(r, 1.0, w.actual, w.ideal);
    }

    // Cuts a group into aligned pieces of 16, 8 or 4 bytes, the widest first.
    template <class Emit>
    void close(const Group& g, const std::vector<Request>& all, Emit& emit) {
        std::array<int, 16> by_byte;
        by_byte.fill(-1);
        const std::uint32_t size = all[g.member[0]].size;
        for (std::size_t m = 0; m < g.n; ++m) by_byte[all[g.member[m]].low % g.word] = static_cast<int>(g.member[m]);
        for (std::uint32_t at = 0; at < g.word; at += size) {
            if (by_byte[at] < 0) continue;
            std::uint32_t width = size;
            for (std::uint32_t w = g.word; w > size; w /= 2) {
                bool whole = at % w == 0;
                for (std::uint32_t b = at; whole && b < at + w; b += size) whole = by_byte[b] >= 0;
                if (whole) {
                    width = w;
                    break;
                }
            }
            const Request& r = all[static_cast<std::size_t>(by_byte[at])];
            const Wavefronts f = r.space == Space::shared ? r.shared_wavefronts(width) : Wavefronts{};
            const double share = static_cast<double>(size) / width;
            for (std::uint32_t b = at; b < at + width; b += size)
                emit(all[static_cast<std::size_t>(by_byte[b])], share, f.actual * share, f.ideal * share);
            at += width - size;
        }
    }

    std::unordered_map<std::uintptr_t, Group> open_;
};

}  // namespace cudaops::trace
#include "macros_on.h"
