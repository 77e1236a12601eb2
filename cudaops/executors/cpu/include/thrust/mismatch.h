#pragma once
#include "cudaops/thrust_algorithms.h"
