#pragma once
#include "cudaops/fp4.h"
