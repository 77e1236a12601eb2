#pragma once
#include "cudaops/thrust_memory.h"
