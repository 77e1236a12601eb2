#pragma once
#include "cudaops/cub_device.h"
