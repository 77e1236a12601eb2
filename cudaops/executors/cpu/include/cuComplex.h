#pragma once
#include "cudaops/complex.h"
