#pragma once
#ifdef __CUDACC__
#define DEVICE_ONLY __device__
#define BOTH_SIDES __host__ __device__
#else
#define DEVICE_ONLY
#define BOTH_SIDES
#endif
