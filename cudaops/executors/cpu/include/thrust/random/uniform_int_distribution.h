#pragma once
#include "cudaops/thrust_random.h"
