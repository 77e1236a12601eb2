// What errors are called and what is said of them.
#include "cudaops/runtime_api.h"

static const struct { cudaError_t code; const char *name, *text; } error_table[] = {
#define ROW(name, number, text) {name, #name, text},
    CUDAOPS_ERRORS(ROW)
#undef ROW
};
const char* cudaGetErrorString(cudaError_t error) {
  for (auto& row : error_table)
    if (row.code == error) return row.text;
  return "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t error) {
  for (auto& row : error_table)
    if (row.code == error) return row.name;
  return "unrecognized error code";
}
