// What there is of CUDA's driver: the runtime by other names. Its errors have the runtime's numbers.
#include "cudaops/driver.h"

#include <cstdio>

#include "machine.h"

struct CUctx_st { int device; };

static const struct { CUresult code; const char* name; } result_table[] = {
#define ROW(name, number) {name, #name},
    CUDAOPS_RESULTS(ROW)
#undef ROW
};
namespace cudaops {
static CUctx_st primary{0};
static bool is_initialized = false;
static thread_local CUcontext current = nullptr;

// Not asked: whether cuInit was called, for which any call of the runtime stands.
static CUresult as_result(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();  // the driver keeps none
  return (CUresult)error;
}
}  // namespace cudaops

using namespace cudaops;

CUresult cuGetErrorName(CUresult error, const char** name) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  *name = nullptr;
  for (auto& row : result_table)
    if (row.code == error) *name = row.name;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  CUresult found = cuGetErrorName(error, text);
  if (found == CUDA_SUCCESS) *text = cudaGetErrorString((cudaError_t)error);
  return found;
}
CUresult cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  is_initialized = true;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) { return version ? (CUresult)cudaDriverGetVersion(version) : CUDA_ERROR_INVALID_VALUE; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  return as_result(cudaGetDevice(device));
}
CUresult cuDeviceGetCount(int* count) { return as_result(cudaGetDeviceCount(count)); }
CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  cudaDeviceProp p;
  CUresult error = as_result(cudaGetDeviceProperties(&p, device));
  if (error == CUDA_SUCCESS) snprintf(name, (size_t)size, "%s", p.name);
  return error;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  cudaDeviceProp p;
  CUresult error = as_result(cudaGetDeviceProperties(&p, device));
  if (error == CUDA_SUCCESS) *uuid = p.uuid;
  return error;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  cudaDeviceProp p;
  CUresult error = as_result(cudaGetDeviceProperties(&p, device));
  if (error == CUDA_SUCCESS) *bytes = p.totalGlobalMem;
  return error;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return as_result(cudaDeviceGetAttribute(value, (cudaDeviceAttr)attribute, device));
}
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  CUresult error = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  return error == CUDA_SUCCESS ? cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) : error;
}
CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  return as_result(cudaDeviceGetPCIBusId(id, size, device));
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return as_result(cudaDeviceCanAccessPeer(can, device, peer));
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  CUresult error = as_result(cudaSetDevice(device));
  if (error == CUDA_SUCCESS) *context = &primary;
  return error;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return as_result(cudaSetDevice(device)); }
// The runtime makes the device's own current with the first thing that it does: cuInit alone does not.
CUresult cuCtxGetCurrent(CUcontext* context) {
  bool is_untouched = is_initialized && allocations_version() == 1;
  *context = current || is_untouched ? current : &primary;
  return as_result(cudaSuccess);
}
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return as_result(cudaSuccess);
}
CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxSetCurrent(context); }
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (context) *context = current;
  return cuCtxSetCurrent(nullptr);
}
CUresult cuCtxGetDevice(CUdevice* device) { return as_result(cudaGetDevice(device)); }
CUresult cuCtxSynchronize() { return as_result(cudaDeviceSynchronize()); }
CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) { return as_result(cudaMemGetInfo(free_bytes, total_bytes)); }
CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  void* found = nullptr;
  CUresult error = as_result(cudaMalloc(&found, bytes));
  *pointer = (CUdeviceptr)found;
  return error;
}
CUresult cuMemFree(CUdeviceptr pointer) { return as_result(cudaFree((void*)pointer)); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return as_result(cudaMemcpy((void*)to, from, bytes, cudaMemcpyHostToDevice));
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return as_result(cudaMemcpy(to, (const void*)from, bytes, cudaMemcpyDeviceToHost));
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return as_result(cudaMemcpy((void*)to, (const void*)from, bytes, cudaMemcpyDeviceToDevice));
}
CUresult cuMemsetD8(CUdeviceptr pointer, unsigned char value, size_t count) {
  return as_result(cudaMemset((void*)pointer, value, count));
}
CUresult cuStreamSynchronize(CUstream stream) { return as_result(cudaStreamSynchronize(stream)); }
