// The CUDA runtime that the program is linked to.
#pragma once
#include <cuda_runtime.h>
