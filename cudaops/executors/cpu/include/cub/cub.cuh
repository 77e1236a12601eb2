#pragma once
#include "cudaops/cub.h"
#include "cudaops/cub_device.h"
