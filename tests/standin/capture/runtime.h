// The runtime that runs kernels on this machine's processor.
#pragma once
#include <cudaops/runtime_api.h>
