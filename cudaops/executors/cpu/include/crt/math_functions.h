#pragma once
#include "../cudaops/cuda.h"
