#pragma once
#include "cudaops/thrust_complex.h"
