#pragma once
__device__ inline int clamp(int v, int low, int high) { return v < low ? low : v > high ? high : v; }
