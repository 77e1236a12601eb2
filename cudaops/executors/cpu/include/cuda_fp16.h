#pragma once
#include "cudaops/half.h"
