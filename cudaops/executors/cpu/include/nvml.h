// What the program's one device says of itself: an A10's published clocks and memory. What a sensor would have
// to say is not supported here, as NVML says of a device without it. Source: NVML API Reference Manual.
#pragma once
#include <cstdio>
#include <cstring>

#include "cudaops/cuda.h"

typedef enum {
  NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4, NVML_ERROR_NOT_FOUND = 6, NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;
typedef enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 } nvmlClockType_t;
typedef enum { NVML_TEMPERATURE_GPU = 0 } nvmlTemperatureSensors_t;
typedef struct nvmlDevice_st* nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
#define NVML_DEVICE_NAME_BUFFER_SIZE 64
#define NVML_DEVICE_UUID_BUFFER_SIZE 80

inline nvmlReturn_t nvmlInit() { return NVML_SUCCESS; }
inline nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
inline nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }
inline const char* nvmlErrorString(nvmlReturn_t error) {
  return error == NVML_SUCCESS ? "Success" : error == NVML_ERROR_NOT_SUPPORTED ? "Not Supported" : "Unknown Error";
}
inline nvmlReturn_t nvmlDeviceGetCount(unsigned* count) { return *count = 1, NVML_SUCCESS; }
inline nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) { return nvmlDeviceGetCount(count); }
inline nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  *device = nullptr;
  return index == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
inline nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex(index, device);
}
inline nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char*, nvmlDevice_t* device) {
  return *device = nullptr, NVML_SUCCESS;
}
inline nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId(id, device);
}
inline nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned length) {
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  return std::snprintf(name, length, "%s", p.name) < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}
inline nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t which, unsigned* mhz) {
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  return *mhz = (unsigned)(which == NVML_CLOCK_MEM ? p.memoryClockRate : p.clockRate) / 1000, NVML_SUCCESS;
}
inline nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t which, unsigned* mhz) {
  return nvmlDeviceGetClockInfo(device, which, mhz);
}
inline nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  *memory = {total, free, total - free};
  return NVML_SUCCESS;
}
inline nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*) {
  return NVML_ERROR_NOT_SUPPORTED;
}
inline nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned*) { return NVML_ERROR_NOT_SUPPORTED; }
inline nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t, unsigned long long*) {
  return NVML_ERROR_NOT_SUPPORTED;
}
inline nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t*) { return NVML_ERROR_NOT_SUPPORTED; }
