#pragma once
#include "cudaops/thrust_iterators.h"
