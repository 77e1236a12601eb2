// Writes what cudaops::trace counted as JSON; read by cudaops/timemodel/trace.py.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <vector>

#include <link.h>

#include "cudaops/trace.h"

namespace cudaops::trace {

namespace detail {

inline std::size_t common(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
    std::size_t n = 0;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        if (a[i] == b[j]) ++n, ++i, ++j;
        else if (a[i] < b[j]) ++i;
        else ++j;
    }
    return n;
}

// The address as addr2line wants it: in a position-independent object, from where that was loaded.
inline std::uintptr_t address_in_object(const void* pc) {
    Dl_info info{};
    const auto address = reinterpret_cast<std::uintptr_t>(pc);
    if (!dladdr(pc, &info) || !info.dli_fbase) return address;
    const auto* header = static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
    return header->e_type == ET_EXEC ? address : address - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
}

inline const char* name_of(Space space) {
    return space == Space::shared ? "shared" : space == Space::constant ? "constant" : "global";
}

inline void write_site(std::FILE* out, const Site& s, const char* comma) {
    std::fprintf(out,
                 "%s\n{\"pc\":%" PRIuPTR ",\"space\":\"%s\",\"size\":%u,\"write\":%s,\"atomic\":%s,"
                 "\"accesses\":%" PRIu64 ",\"kept\":%" PRIu64 ",\"requests\":%" PRIu64
                 ",\"instructions\":%.3f,\"sectors\":%" PRIu64 ",\"lines\":%" PRIu64
                 ",\"wavefronts\":%" PRIu64 ",\"ideal_wavefronts\":%" PRIu64
                 ",\"joined_wavefronts\":%.3f,\"joined_ideal\":%.3f,\"distinct_addresses\":%" PRIu64
                 ",\"worst_multiplicity\":%" PRIu64 ",\"hits\":[",
                 comma, address_in_object(s.pc), name_of(s.space), s.size,
                 s.write ? "true" : "false", s.atomic ? "true" : "false", s.accesses, s.kept, s.requests,
                 s.instructions, s.sectors, s.lines, s.wavefronts, s.ideal_wavefronts,
                 s.joined_wavefronts, s.joined_ideal, s.distinct_addresses, s.worst_multiplicity);
    for (std::size_t i = 0; i < kCacheSizes; ++i)
        std::fprintf(out, "%s%" PRIu64, i ? "," : "", s.hits[i]);
    std::fprintf(out, "]}");
}

inline void write_block(std::FILE* out, const BlockRecord& b, const char* comma) {
    std::fprintf(out, "%s\n{\"block\":%" PRIu64 ",\"threads\":%u,\"epochs\":%u"
                      ",\"accesses\":%" PRIu64 ",\"counted\":%s,\"regions\":{",
                 comma, b.block, b.threads, b.epochs, b.accesses, b.counted ? "true" : "false");
    const char* between = "";
    for (const auto& [index, f] : b.regions) {
        std::fprintf(out, "%s\"%d\":[%zu,%zu]", between, index, f.read.size(), f.written.size());
        between = ",";
    }
    std::fprintf(out, "},\"atomics\":[");
    between = "";
    for (const AtomicLine& a : b.atomics) {
        std::fprintf(out, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", between, a.line, a.serial, a.hottest);
        between = ",";
    }
    std::fprintf(out, "]}");
}

// Sectors two sampled blocks both touch, an allocation at a time: reads with reads, writes with writes.
inline void write_overlaps(std::FILE* out, const std::vector<const BlockRecord*>& blocks) {
    const char* comma = "";
    for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t j = i + 1; j < blocks.size(); ++j)
            for (const auto& [index, f] : blocks[i]->regions) {
                const auto other = blocks[j]->regions.find(index);
                if (other == blocks[j]->regions.end()) continue;
                std::fprintf(out, "%s\n[%" PRIu64 ",%" PRIu64 ",%d,%zu,%zu]", comma, blocks[i]->block,
                             blocks[j]->block, index, common(f.read, other->second.read),
                             common(f.written, other->second.written));
                comma = ",";
            }
}

}  // namespace detail

// Write everything recorded so far to `path`. False where the file cannot be written.
inline bool report(const char* path) {
    std::FILE* out = std::fopen(path, "w");
    if (!out) return false;
    std::lock_guard<std::mutex> hold(registry().lock);
    std::fprintf(out, "{\"cache_bytes\":[");
    for (std::size_t i = 0; i < kCacheSizes; ++i)
        std::fprintf(out, "%s%zu", i ? "," : "", kSmallestCacheBytes << i);
    std::fprintf(out, "],\"sites\":[");
    const char* comma = "";
    for (const auto& r : registry().recorders)
        for (const Site& s : r->sites()) {
            detail::write_site(out, s, comma);
            comma = ",";
        }
    std::fprintf(out, "],\"blocks\":[");
    comma = "";
    std::vector<const BlockRecord*> blocks;
    for (const auto& r : registry().recorders)
        for (const BlockRecord& b : r->blocks()) {
            detail::write_block(out, b, comma);
            comma = ",";
            blocks.push_back(&b);
        }
    std::fprintf(out, "],\"overlaps\":[");
    detail::write_overlaps(out, blocks);
    std::fprintf(out, "]}\n");
    return std::fclose(out) == 0;
}

}  // namespace cudaops::trace
