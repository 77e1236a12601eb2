#pragma once
#include <cuda_runtime.h>

// One sweep over `rows` x `columns` values, in a stream.
void relax(const float* in, float* out, int rows, int columns, float weight, cudaStream_t stream);
