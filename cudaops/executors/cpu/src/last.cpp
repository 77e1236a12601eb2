// Linked after the author's object: its thread-local variables and its code end here. What a kernel writes behind
// its shared arrays goes into this margin, and not into variables of the runtime.
#include "margins.h"

extern "C" {
__thread char cudaops_shared_end[cudaops::shared_margin];
__attribute__((used)) void cudaops_code_end() {}
}
