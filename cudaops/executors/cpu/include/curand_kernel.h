#pragma once
#include "cudaops/curand_device.h"
#include "curand.h"  // as cuRAND's own header has it
