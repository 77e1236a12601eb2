// Launches are started by who saw them at the driver: see front.cpp.
#pragma once
#define CUDAOPS_CAPTURE_RUNTIME_VARIABLE(text, expression)
