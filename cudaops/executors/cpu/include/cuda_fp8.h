#pragma once
#include "cudaops/fp8.h"
