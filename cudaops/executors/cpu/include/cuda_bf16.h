#pragma once
#include "cudaops/bfloat16.h"
