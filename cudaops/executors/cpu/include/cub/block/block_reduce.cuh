#pragma once
#include "cudaops/cub.h"
