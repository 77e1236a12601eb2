// Memory in the order of streams, the pools it comes from, and advice on managed memory: kept as accounts.
#include <algorithm>
#include <map>

#include "machine.h"

struct CUmemPoolHandle_st {
  cudaMemPoolProps properties{};
  int reuse[4] = {0, 1, 1, 1};  // by attribute
  unsigned long long threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  cudaMemAccessFlags access = cudaMemAccessFlagsProtReadWrite;
};

namespace cudaops {

constexpr unsigned long long pool_step = 32 << 20;  // what a pool takes at once

struct Pools {
  CUmemPoolHandle_st standard;
  cudaMemPool_t current = nullptr;  // none: the standard one
  std::map<const void*, std::pair<cudaMemPool_t, size_t>> taken;
  std::map<cudaMemPool_t, bool> made;
};
static Lasting<Pools> lasting_pools CUDAOPS_LASTING;
static Pools& pools = lasting_pools.value;

static cudaMemPool_t standard_pool() {
  cudaMemPoolProps& p = pools.standard.properties;
  p.allocType = cudaMemAllocationTypePinned;
  p.location = {cudaMemLocationTypeDevice, 0};
  return &pools.standard;
}
static cudaError_t take(void** pointer, size_t bytes, cudaMemPool_t pool) {
  if (!pool) return fail(cudaErrorInvalidValue);
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  size_t limit = pool->properties.maxSize;
  if (limit && pool->used + bytes > limit) return fail(cudaErrorMemoryAllocation);
  cudaError_t error = reserve(pointer, bytes, Memory::Device);
  if (error != cudaSuccess || !bytes || keeps_allocation(*pointer, bytes)) return error;
  pools.taken[*pointer] = {pool, bytes};
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  pool->reserved = std::max(pool->reserved, (pool->used + pool_step - 1) / pool_step * pool_step);
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  return cudaSuccess;
}
void leave_pool(const void* pointer) {
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  auto found = pools.taken.find(pointer);
  if (found == pools.taken.end()) return;
  found->second.first->used -= found->second.second;
  pools.taken.erase(found);
}
static void trim(CUmemPoolHandle_st& pool, unsigned long long kept) {
  unsigned long long needed = (std::max(pool.used, kept) + pool_step - 1) / pool_step * pool_step;
  pool.reserved = std::min(pool.reserved, needed);
}
void settle_pools() {
  std::lock_guard<std::recursive_mutex> hold(host_lock);
  trim(pools.standard, std::min(pools.standard.threshold, pools.standard.reserved));
  for (auto& one : pools.made) trim(*one.first, std::min(one.first->threshold, one.first->reserved));
}

}  // namespace cudaops

using namespace cudaops;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (device != 0) return fail(cudaErrorInvalidDevice);
  if (!pool) return fail(cudaErrorInvalidValue);
  *pool = standard_pool();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  cudaError_t error = cudaDeviceGetDefaultMemPool(pool, device);
  if (error == cudaSuccess && pools.current) *pool = pools.current;
  return error;
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  if (device != 0) return fail(cudaErrorInvalidDevice);
  if (!pool) return fail(cudaErrorInvalidValue);
  pools.current = pool;
  return cudaSuccess;
}
static cudaError_t check(const cudaMemLocation* location, cudaMemAllocationType type) {
  if (!location || type != cudaMemAllocationTypePinned) return cudaErrorInvalidValue;
  return location->type == cudaMemLocationTypeDevice && location->id == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  cudaError_t error = check(location, type);
  return error == cudaSuccess ? cudaDeviceGetDefaultMemPool(pool, 0) : fail(error);
}
cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  cudaError_t error = check(location, type);
  return error == cudaSuccess ? cudaDeviceGetMemPool(pool, 0) : fail(error);
}
cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  cudaError_t error = check(location, type);
  return error == cudaSuccess ? cudaDeviceSetMemPool(0, pool) : fail(error);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (!pool || !properties) return fail(cudaErrorInvalidValue);
  bool is_here = properties->location.type == cudaMemLocationTypeDevice && properties->location.id == 0;
  if (properties->allocType != cudaMemAllocationTypePinned || !is_here) return fail(cudaErrorInvalidValue);
  *pool = new CUmemPoolHandle_st{*properties};
  pools.made[*pool] = true;
  return cudaSuccess;
}
// What is still taken from it stays so.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (!pools.made.count(pool)) return fail(cudaErrorInvalidValue);
  for (auto& one : pools.taken)
    if (one.second.first == pool) one.second = {standard_pool(), 0};
  if (pools.current == pool) pools.current = nullptr;
  pools.made.erase(pool);
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!pool || !value) return fail(cudaErrorInvalidValue);
  auto number = [&] { return *(unsigned long long*)value; };
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: pool->reuse[attribute] = *(int*)value; break;
    case cudaMemPoolAttrReleaseThreshold: pool->threshold = number(); break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      if (number()) return fail(cudaErrorInvalidValue);  // it may only be begun anew
      if (attribute == cudaMemPoolAttrUsedMemHigh) pool->used_high = pool->used;
      else pool->reserved_high = pool->reserved;
      break;
    default: return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (!pool || !value) return fail(cudaErrorInvalidValue);
  auto& number = *(unsigned long long*)value;
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: *(int*)value = pool->reuse[attribute]; break;
    case cudaMemPoolAttrReleaseThreshold: number = pool->threshold; break;
    case cudaMemPoolAttrReservedMemCurrent: number = pool->reserved; break;
    case cudaMemPoolAttrReservedMemHigh: number = pool->reserved_high; break;
    case cudaMemPoolAttrUsedMemCurrent: number = pool->used; break;
    case cudaMemPoolAttrUsedMemHigh: number = pool->used_high; break;
    default: return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  if (!pool) return fail(cudaErrorInvalidValue);
  trim(*pool, bytes);
  return cudaSuccess;
}
static bool is_of_device(const cudaMemLocation& location) {
  return location.type == cudaMemLocationTypeDevice && location.id == 0;
}
// Its own device always has all of it.
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* descriptions, size_t count) {
  if (!pool || (count && !descriptions)) return fail(cudaErrorInvalidValue);
  for (size_t n = 0; n < count; ++n) {
    if (!is_of_device(descriptions[n].location)) return fail(cudaErrorInvalidDevice);
    if (descriptions[n].flags == cudaMemAccessFlagsProtNone) return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  if (!flags || !pool || !location) return fail(cudaErrorInvalidValue);
  if (!is_of_device(*location)) return fail(cudaErrorInvalidDevice);
  *flags = pool->access;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t) {
  return take(pointer, bytes, pool);
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return take(pointer, bytes, pools.current ? pools.current : standard_pool());
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  if (keeps_release(pointer)) return cudaSuccess;
  return cudaFree(pointer);
}

// Advice, of each managed allocation as a whole.
namespace cudaops {
struct Advice {
  int is_read_mostly = 0;
  cudaMemLocation preferred{cudaMemLocationTypeInvalid, cudaInvalidDeviceId};
  cudaMemLocation prefetched{cudaMemLocationTypeInvalid, cudaInvalidDeviceId};
  std::vector<int> accessed_by;
};
static Lasting<std::map<uintptr_t, Advice>> lasting_advice CUDAOPS_LASTING;
static std::map<uintptr_t, Advice>& all_advice = lasting_advice.value;

static Advice* advice_on(const void* pointer) {
  const Allocation* a = allocation_around((uintptr_t)pointer);
  if (a && a->kind == Memory::Managed) return &all_advice[a->begin];
  return !a && is_global(pointer) ? &all_advice[(uintptr_t)pointer] : nullptr;
}
static cudaMemLocation of_device(int device) {
  return {device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, device};
}
static int device_of(const cudaMemLocation& place) {
  return place.type == cudaMemLocationTypeHost ? cudaCpuDeviceId : place.id;
}
}  // namespace cudaops
cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t, cudaMemLocation place, unsigned, cudaStream_t) {
  if (Advice* on = advice_on(pointer)) on->prefetched = place;
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void* pointer, size_t, cudaMemoryAdvise advice, cudaMemLocation place) {
  Advice* on = advice_on(pointer);
  if (!on) return cudaSuccess;
  auto& by = on->accessed_by;
  switch (advice) {
    case cudaMemAdviseSetReadMostly: on->is_read_mostly = 1; break;
    case cudaMemAdviseUnsetReadMostly: on->is_read_mostly = 0; break;
    case cudaMemAdviseSetPreferredLocation: on->preferred = place; break;
    case cudaMemAdviseUnsetPreferredLocation: on->preferred = Advice().preferred; break;
    default:
      by.erase(std::remove(by.begin(), by.end(), device_of(place)), by.end());
      if (advice == cudaMemAdviseSetAccessedBy) by.push_back(device_of(place));
  }
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device, cudaStream_t stream) {
  return cudaMemPrefetchAsync(pointer, bytes, of_device(device), 0, stream);
}
cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, int device) {
  return cudaMemAdvise(pointer, bytes, advice, of_device(device));
}
cudaError_t cudaMemRangeGetAttribute(void* data, size_t size, cudaMemRangeAttribute attribute, const void* pointer,
                                     size_t) {
  const Advice* on = advice_on(pointer);
  if (!data || size < sizeof(int) || size % sizeof(int) || !on) return fail(cudaErrorInvalidValue);
  int* value = (int*)data;
  switch (attribute) {
    case cudaMemRangeAttributeReadMostly: *value = on->is_read_mostly; break;
    case cudaMemRangeAttributePreferredLocation: *value = device_of(on->preferred); break;
    case cudaMemRangeAttributeLastPrefetchLocation: *value = device_of(on->prefetched); break;
    case cudaMemRangeAttributePreferredLocationType: *value = on->preferred.type; break;
    case cudaMemRangeAttributePreferredLocationId: *value = on->preferred.id; break;
    case cudaMemRangeAttributeLastPrefetchLocationType: *value = on->prefetched.type; break;
    case cudaMemRangeAttributeLastPrefetchLocationId: *value = on->prefetched.id; break;
    case cudaMemRangeAttributeAccessedBy:
      for (size_t n = 0; n < size / sizeof(int); ++n)
        value[n] = n < on->accessed_by.size() ? on->accessed_by[n] : cudaInvalidDeviceId;
      break;
    default: return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemRangeGetAttributes(void** data, size_t* sizes, cudaMemRangeAttribute* attributes, size_t count,
                                      const void* pointer, size_t bytes) {
  for (size_t n = 0; n < count; ++n) {
    cudaError_t error = cudaMemRangeGetAttribute(data[n], sizes[n], attributes[n], pointer, bytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
