#pragma once
#include "cudaops/cuda.h"
#include "cudaops/driver.h"
