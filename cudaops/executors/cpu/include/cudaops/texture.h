// Arrays, textures and surfaces: descriptors as NVIDIA's runtime has them, and an object that is the address
// of what describes it in device memory. Of textures the default of a fetch: point and linear filters with
// all address modes, elements or normalised floats; no mipmaps, no cubes, no textures by reference. Source:
// CUDA C++ Programming Guide, texture and surface memory, and texture fetching.
#pragma once
#include "macros_off.h"
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "runtime_api.h"

enum cudaChannelFormatKind {
  cudaChannelFormatKindSigned = 0, cudaChannelFormatKindUnsigned = 1, cudaChannelFormatKindFloat = 2,
  cudaChannelFormatKindNone = 3
};
struct cudaChannelFormatDesc {
  int x, y, z, w;
  cudaChannelFormatKind f;
};
enum cudaResourceType {
  cudaResourceTypeArray = 0, cudaResourceTypeMipmappedArray = 1, cudaResourceTypeLinear = 2, cudaResourceTypePitch2D = 3
};
enum cudaTextureAddressMode {
  cudaAddressModeWrap = 0, cudaAddressModeClamp = 1, cudaAddressModeMirror = 2, cudaAddressModeBorder = 3
};
enum cudaTextureFilterMode { cudaFilterModePoint = 0, cudaFilterModeLinear = 1 };
enum cudaTextureReadMode { cudaReadModeElementType = 0, cudaReadModeNormalizedFloat = 1 };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero = 0, cudaBoundaryModeClamp = 1, cudaBoundaryModeTrap = 2 };
#define cudaArrayDefault 0x00
#define cudaArrayLayered 0x01
#define cudaArraySurfaceLoadStore 0x02
#define cudaArrayCubemap 0x04
#define cudaArrayTextureGather 0x08
typedef struct cudaMipmappedArray* cudaMipmappedArray_t;
typedef const struct cudaArray* cudaArray_const_t;

struct cudaResourceDesc {
  cudaResourceType resType;
  union {
    struct { cudaArray_t array; } array;
    struct { cudaMipmappedArray_t mipmap; } mipmap;
    struct { void* devPtr; cudaChannelFormatDesc desc; size_t sizeInBytes; } linear;
    struct { void* devPtr; cudaChannelFormatDesc desc; size_t width, height, pitchInBytes; } pitch2D;
  } res;
  unsigned flags;
};
struct cudaResourceViewDesc;
struct cudaTextureDesc {
  cudaTextureAddressMode addressMode[3];
  cudaTextureFilterMode filterMode;
  cudaTextureReadMode readMode;
  int sRGB;
  float borderColor[4];
  int normalizedCoords;
  unsigned maxAnisotropy;
  cudaTextureFilterMode mipmapFilterMode;
  float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
  int disableTrilinearOptimization, seamlessCubemap;
};

// A host's handle; elements lie in device memory, row by row.
struct cudaArray {
  cudaChannelFormatDesc desc;
  cudaExtent extent;  // in elements, 0 where it has no such axis
  unsigned flags;
  char* data;
};

namespace cudaops {

// An image as a kernel sees it, in device memory: its elements by their type, of which one pointer is set, so
// that who reads the type knows what stands there.
template <bool Writes>
struct Texels {
  template <class T> using Of = std::conditional_t<Writes, T, const T>;
  using Byte = Of<unsigned char>;
  Of<float>* f32;
  Byte* u8;
  Of<signed char>* i8;
  Of<unsigned short>*u16, *f16;
  Of<short>* i16;
  Of<unsigned>* u32;
  Of<int>* i32;
  unsigned width, height, depth;  // in elements; at least 1
  unsigned components, bytes;     // of an element
  size_t pitch;                   // bytes from row to row
  int bits, kind;
  Byte* row(unsigned y, unsigned z) const { return begin() + ((size_t)z * height + y) * pitch; }
  Byte* begin() const {
    bool is_signed = kind == cudaChannelFormatKindSigned;
    if (bits == 8) return is_signed ? reinterpret_cast<Byte*>(i8) : u8;
    if (bits == 16)
      return kind == cudaChannelFormatKindFloat ? reinterpret_cast<Byte*>(f16)
             : is_signed                        ? reinterpret_cast<Byte*>(i16)
                                                : reinterpret_cast<Byte*>(u16);
    return kind == cudaChannelFormatKindFloat ? reinterpret_cast<Byte*>(f32)
           : is_signed                        ? reinterpret_cast<Byte*>(i32)
                                              : reinterpret_cast<Byte*>(u32);
  }
};
struct Texture {
  Texels<false> image;
  int address[3], filter, reads_normalised, has_normalised_places;
  float border[4];
};
using Surface = Texels<true>;

template <class Image>
void describe_texels(Image& image, void* data, const cudaChannelFormatDesc& desc, cudaExtent extent, size_t pitch) {
  image.bits = desc.x, image.kind = desc.f;
  image.components = (desc.x > 0) + (desc.y > 0) + (desc.z > 0) + (desc.w > 0);
  image.bytes = (unsigned)(desc.x + desc.y + desc.z + desc.w) / 8;
  image.width = (unsigned)extent.width;
  image.height = extent.height ? (unsigned)extent.height : 1;
  image.depth = extent.depth ? (unsigned)extent.depth : 1;
  image.pitch = pitch ? pitch : extent.width * image.bytes;
  bool is_float = desc.f == cudaChannelFormatKindFloat, is_signed = desc.f == cudaChannelFormatKindSigned;
  auto place = [&](auto& pointer) { pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(data); };
  if (desc.x == 8 && is_signed) place(image.i8);
  else if (desc.x == 8) place(image.u8);
  else if (desc.x == 16 && is_float) place(image.f16);
  else if (desc.x == 16 && is_signed) place(image.i16);
  else if (desc.x == 16) place(image.u16);
  else if (is_float) place(image.f32);
  else if (is_signed) place(image.i32);
  else place(image.u32);
}

template <class T>
T* on_device(const T& host) {
  void* there = nullptr;
  if (cudaMalloc(&there, sizeof(T)) != cudaSuccess) return nullptr;
  cudaMemcpy(there, &host, sizeof(T), cudaMemcpyHostToDevice);
  return static_cast<T*>(there);
}

}  // namespace cudaops

typedef const cudaops::Texture* cudaTextureObject_t;
typedef const cudaops::Surface* cudaSurfaceObject_t;

inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
  return cudaChannelFormatDesc{x, y, z, w, f};
}
namespace cudaops {
template <class T> struct channel { using type = T; static constexpr int count = 1; };
#define CUDAOPS_CHANNEL(name, T)                                                  \
  template <> struct channel<name##1> { using type = T; static constexpr int count = 1; }; \
  template <> struct channel<name##2> { using type = T; static constexpr int count = 2; }; \
  template <> struct channel<name##4> { using type = T; static constexpr int count = 4; };
CUDAOPS_CHANNEL(char, signed char) CUDAOPS_CHANNEL(uchar, unsigned char) CUDAOPS_CHANNEL(short, short)
CUDAOPS_CHANNEL(ushort, unsigned short) CUDAOPS_CHANNEL(int, int) CUDAOPS_CHANNEL(uint, unsigned)
CUDAOPS_CHANNEL(float, float)
#undef CUDAOPS_CHANNEL
}  // namespace cudaops
template <class T>
cudaChannelFormatDesc cudaCreateChannelDesc() {
  using C = typename cudaops::channel<T>::type;
  constexpr int bits = 8 * (int)sizeof(C), n = cudaops::channel<T>::count;
  cudaChannelFormatKind kind = std::is_floating_point<C>::value || !std::is_integral<C>::value ? cudaChannelFormatKindFloat
                               : std::is_signed<C>::value ? cudaChannelFormatKindSigned
                                                          : cudaChannelFormatKindUnsigned;
  return cudaChannelFormatDesc{bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 3 ? bits : 0, kind};
}

// Arrays.
inline cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, cudaExtent extent,
                                     unsigned flags = 0) {
  auto* made = new cudaArray{*desc, extent, flags, nullptr};
  size_t bytes = (size_t)(desc->x + desc->y + desc->z + desc->w) / 8 * extent.width * (extent.height ? extent.height : 1) *
                 (extent.depth ? extent.depth : 1);
  cudaError_t error = cudaMalloc((void**)&made->data, bytes);
  if (error != cudaSuccess) delete made;
  else *array = made;
  return error;
}
inline cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, size_t width, size_t height = 0,
                                   unsigned flags = 0) {
  return cudaMalloc3DArray(array, desc, cudaExtent{width, height, 0}, flags);
}
inline cudaError_t cudaFreeArray(cudaArray_t array) {
  cudaError_t error = array ? cudaFree(array->data) : cudaSuccess;
  delete array;
  return error;
}
inline cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* desc, cudaExtent* extent, unsigned* flags, cudaArray_t array) {
  if (desc) *desc = array->desc;
  if (extent) *extent = array->extent;
  if (flags) *flags = array->flags;
  return cudaSuccess;
}
namespace cudaops {
inline size_t element_bytes(const cudaArray& a) { return (size_t)(a.desc.x + a.desc.y + a.desc.z + a.desc.w) / 8; }
inline size_t row_bytes(const cudaArray& a) { return a.extent.width * element_bytes(a); }
}  // namespace cudaops
inline cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                       size_t height, cudaMemcpyKind kind) {
  size_t row = cudaops::row_bytes(*to);
  return cudaMemcpy2D(to->data + y * row + x, row, from, pitch, width, height, kind);
}
inline cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch,
                                            size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream = 0) {
  size_t row = cudaops::row_bytes(*to);
  return cudaMemcpy2DAsync(to->data + y * row + x, row, from, pitch, width, height, kind, stream);
}
inline cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y,
                                              size_t width, size_t height, cudaMemcpyKind kind,
                                              cudaStream_t stream = 0) {
  size_t row = cudaops::row_bytes(*from);
  return cudaMemcpy2DAsync(to, pitch, from->data + y * row + x, row, width, height, kind, stream);
}
inline cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from,
                                            size_t from_x, size_t from_y, size_t width, size_t height,
                                            cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
  size_t row = cudaops::row_bytes(*from), to_row = cudaops::row_bytes(*to);
  return cudaMemcpy2D(to->data + to_y * to_row + to_x, to_row, from->data + from_y * row + from_x, row, width, height,
                      kind);
}
inline cudaError_t cudaMemcpyArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from,
                                          size_t from_x, size_t from_y, size_t bytes,
                                          cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
  return cudaMemcpy(to->data + to_y * cudaops::row_bytes(*to) + to_x,
                    from->data + from_y * cudaops::row_bytes(*from) + from_x, bytes, kind);
}
inline cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes,
                                          cudaMemcpyKind kind, cudaStream_t stream = 0) {
  return cudaMemcpyAsync(to->data + y * cudaops::row_bytes(*to) + x, from, bytes, kind, stream);
}
inline cudaError_t cudaMemcpyFromArrayAsync(void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                            cudaMemcpyKind kind, cudaStream_t stream = 0) {
  return cudaMemcpyAsync(to, from->data + y * cudaops::row_bytes(*from) + x, bytes, kind, stream);
}
inline cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* desc, cudaArray_const_t array) {
  *desc = array->desc;
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                         size_t height, cudaMemcpyKind kind) {
  size_t row = cudaops::row_bytes(*from);
  return cudaMemcpy2D(to, pitch, from->data + y * row + x, row, width, height, kind);
}
inline cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpy(to->data + y * cudaops::row_bytes(*to) + x, from, bytes, kind);
}
inline cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                       cudaMemcpyKind kind) {
  return cudaMemcpy(to, from->data + y * cudaops::row_bytes(*from) + x, bytes, kind);
}

// Textures and surfaces.
inline cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                           const cudaTextureDesc* how, const cudaResourceViewDesc* = nullptr) {
  cudaops::Texture made{};
  switch (resource->resType) {
    case cudaResourceTypeArray: {
      const cudaArray& a = *resource->res.array.array;
      cudaops::describe_texels(made.image, a.data, a.desc, a.extent, 0);
      break;
    }
    case cudaResourceTypeLinear: {
      const auto& l = resource->res.linear;
      size_t bytes = (size_t)(l.desc.x + l.desc.y + l.desc.z + l.desc.w) / 8;
      cudaops::describe_texels(made.image, l.devPtr, l.desc, cudaExtent{l.sizeInBytes / bytes, 0, 0}, 0);
      break;
    }
    case cudaResourceTypePitch2D: {
      const auto& p = resource->res.pitch2D;
      cudaops::describe_texels(made.image, p.devPtr, p.desc, cudaExtent{p.width, p.height, 0}, p.pitchInBytes);
      break;
    }
    default: return cudaErrorNotSupported;
  }
  for (int i = 0; i < 3; ++i) made.address[i] = how->addressMode[i];
  made.filter = how->filterMode;
  made.reads_normalised = how->readMode == cudaReadModeNormalizedFloat;
  made.has_normalised_places = how->normalizedCoords;
  std::memcpy(made.border, how->borderColor, sizeof made.border);
  *object = cudaops::on_device(made);
  return *object ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) { return cudaFree((void*)object); }
inline cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
  if (resource->resType != cudaResourceTypeArray) return cudaErrorInvalidValue;
  const cudaArray& a = *resource->res.array.array;
  cudaops::Surface made{};
  cudaops::describe_texels(made, a.data, a.desc, a.extent, 0);
  *object = cudaops::on_device(made);
  return *object ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) { return cudaFree((void*)object); }
#include "macros_on.h"
