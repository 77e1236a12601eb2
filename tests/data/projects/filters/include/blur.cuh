#pragma once
#include "clamp.cuh"
#ifndef RADIUS
#error "RADIUS comes from the Makefile"
#endif
void blur(const float* in, float* out, int width, int height);
