// Everything that nvcc's implicit include of cuda_runtime.h gives a program.
#pragma once
#include <cassert>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "vector_types.h"
#include "context.h"
#include "device_math.h"
#include "ptx.h"
#include "simd.h"
#include "warp.h"
#include "atomics.h"
#include "ptx_machine.h"
#include "launch.h"
#include "runtime_api.h"
#include "texture_fetch.h"
#include "keywords.h"
