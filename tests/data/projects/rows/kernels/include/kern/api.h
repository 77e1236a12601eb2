#pragma once
void normalise(const float* in, float* out, int rows, int columns);
