// What is linked around the author's shared arrays.
#pragma once

namespace cudaops {

constexpr unsigned shared_marker = 16;    // bytes of the variable linked before the author's
constexpr unsigned shared_margin = 4096;  // of that linked after them

}  // namespace cudaops
