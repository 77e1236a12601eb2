// What kernels do with textures and surfaces.
#pragma once
#include "macros_off.h"
#include "device_math.h"
#include "texture.h"
#include "warp.h"

namespace cudaops {

// Where a place along an axis is read; below 0: nowhere, which is the border.
CUDAOPS_INLINE int texel_at(float place, unsigned size, int mode, int is_normalised) {
  float n = (float)size;
  if (!(place > -16777216.0f && place < 16777216.0f)) place = place > 0 ? n : -1.0f;
  long long i = (long long)floorf(place);
  if (mode == cudaAddressModeBorder) return i < 0 || i >= (long long)size ? -1 : (int)i;
  if (is_normalised && mode == cudaAddressModeWrap) return (int)(((i % size) + size) % size);
  if (is_normalised && mode == cudaAddressModeMirror) {
    long long twice = 2ll * size, at = ((i % twice) + twice) % twice;
    return (int)(at < (long long)size ? at : twice - 1 - at);
  }
  return i < 0 ? 0 : i >= (long long)size ? (int)size - 1 : (int)i;
}

CUDAOPS_INLINE float texel_component(const Texture& t, const unsigned char* element, unsigned c) {
  bool is_signed = t.image.kind == cudaChannelFormatKindSigned;
  if (t.image.bits == 8) {
    if (is_signed) return fmaxf((float)reinterpret_cast<const signed char*>(element)[c] / 127.0f, -1.0f);
    return (float)element[c] / 255.0f;
  }
  if (t.image.bits == 16) {
    if (is_signed) return fmaxf((float)reinterpret_cast<const short*>(element)[c] / 32767.0f, -1.0f);
    return (float)reinterpret_cast<const unsigned short*>(element)[c] / 65535.0f;
  }
  return reinterpret_cast<const float*>(element)[c];
}

// One element as `T`: as it stands, or of normalised integers as floats.
template <class T>
CUDAOPS_INLINE T texel(const Texture& t, int x, int y, int z) {
  T result{};
  if (x < 0 || y < 0 || z < 0) {
    if (t.image.kind == cudaChannelFormatKindFloat || t.reads_normalised)
      for (unsigned c = 0; c < sizeof(T) / 4; ++c) reinterpret_cast<float*>(&result)[c] = t.border[c];
    return result;
  }
  const unsigned char* element = t.image.row((unsigned)y, (unsigned)z) + (size_t)x * t.image.bytes;
  if (!t.reads_normalised) return *reinterpret_cast<const T*>(element);
  for (unsigned c = 0; c < sizeof(T) / 4 && c < t.image.components; ++c)
    reinterpret_cast<float*>(&result)[c] = texel_component(t, element, c);
  return result;
}

// Weights have 8 bits behind the point.
CUDAOPS_INLINE float weight(float place) { return floorf((place - floorf(place)) * 256.0f + 0.5f) / 256.0f; }

template <class T>
CUDAOPS_INLINE T fetch(const Texture& t, float x, float y, float z, int axes) {
  const Texels<false>& m = t.image;
  if (t.has_normalised_places) {
    x *= (float)m.width;
    if (axes > 1) y *= (float)m.height;
    if (axes > 2) z *= (float)m.depth;
  }
  auto at = [&](float place, int axis) {
    unsigned size = axis == 0 ? m.width : axis == 1 ? m.height : m.depth;
    return axis < axes ? texel_at(place, size, t.address[axis], t.has_normalised_places)
                       : place < 0 ? 0 : place >= (float)size ? (int)size - 1 : (int)place;
  };
  if (t.filter == cudaFilterModePoint) return texel<T>(t, at(x, 0), at(y, 1), at(z, 2));
  float places[3] = {x - 0.5f, axes > 1 ? y - 0.5f : y, axes > 2 ? z - 0.5f : z};
  float weights[3] = {weight(places[0]), axes > 1 ? weight(places[1]) : 0.0f, axes > 2 ? weight(places[2]) : 0.0f};
  T result{};
  auto* sums = reinterpret_cast<float*>(&result);
  for (int corner = 0; corner < 1 << axes; ++corner) {
    int shift[3] = {corner & 1, corner >> 1 & 1, corner >> 2 & 1};
    float share = 1.0f;
    for (int a = 0; a < axes; ++a) share *= shift[a] ? weights[a] : 1.0f - weights[a];
    T one = texel<T>(t, at(places[0] + (float)shift[0], 0), at(places[1] + (float)shift[1], 1),
                     at(places[2] + (float)shift[2], 2));
    for (unsigned c = 0; c < sizeof(T) / 4; ++c) sums[c] += share * reinterpret_cast<const float*>(&one)[c];
  }
  return result;
}

}  // namespace cudaops

template <class T>
CUDAOPS_INLINE T tex1Dfetch(cudaTextureObject_t t, int x) {
  T nothing{};
  return x < 0 || (unsigned)x >= t->image.width ? nothing : cudaops::texel<T>(*t, x, 0, 0);
}
template <class T> CUDAOPS_INLINE T tex1D(cudaTextureObject_t t, float x) { return cudaops::fetch<T>(*t, x, 0, 0, 1); }
template <class T> CUDAOPS_INLINE T tex2D(cudaTextureObject_t t, float x, float y) { return cudaops::fetch<T>(*t, x, y, 0, 2); }
template <class T>
CUDAOPS_INLINE T tex3D(cudaTextureObject_t t, float x, float y, float z) { return cudaops::fetch<T>(*t, x, y, z, 3); }
template <class T>
CUDAOPS_INLINE T tex1DLayered(cudaTextureObject_t t, float x, int layer) { return cudaops::fetch<T>(*t, x, 0, (float)layer, 1); }
template <class T>
CUDAOPS_INLINE T tex2DLayered(cudaTextureObject_t t, float x, float y, int layer) {
  return cudaops::fetch<T>(*t, x, y, (float)layer, 2);
}
template <class T> CUDAOPS_INLINE T tex1DLod(cudaTextureObject_t t, float x, float) { return tex1D<T>(t, x); }
template <class T> CUDAOPS_INLINE T tex2DLod(cudaTextureObject_t t, float x, float y, float) { return tex2D<T>(t, x, y); }
template <class T>
CUDAOPS_INLINE T tex3DLod(cudaTextureObject_t t, float x, float y, float z, float) { return tex3D<T>(t, x, y, z); }
template <class T> CUDAOPS_INLINE void tex1Dfetch(T* to, cudaTextureObject_t t, int x) { *to = tex1Dfetch<T>(t, x); }
template <class T> CUDAOPS_INLINE void tex1D(T* to, cudaTextureObject_t t, float x) { *to = tex1D<T>(t, x); }
template <class T> CUDAOPS_INLINE void tex2D(T* to, cudaTextureObject_t t, float x, float y) { *to = tex2D<T>(t, x, y); }
template <class T>
CUDAOPS_INLINE void tex3D(T* to, cudaTextureObject_t t, float x, float y, float z) { *to = tex3D<T>(t, x, y, z); }
template <class T>
CUDAOPS_INLINE void tex2DLayered(T* to, cudaTextureObject_t t, float x, float y, int layer) {
  *to = tex2DLayered<T>(t, x, y, layer);
}

namespace cudaops {
// The element at byte `x` of a row; null where it is outside and nothing is to be done. `Trap` goes where the
// address leads.
template <class T>
CUDAOPS_INLINE T* surface_at(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode) {
  int last = (int)(s->pitch - sizeof(T));
  bool is_inside = x >= 0 && x <= last && (unsigned)y < s->height && (unsigned)z < s->depth;
  if (!is_inside && mode == cudaBoundaryModeZero) return nullptr;
  if (!is_inside && mode == cudaBoundaryModeClamp) {
    x = x < 0 ? 0 : x > last ? last : x;
    y = y < 0 ? 0 : (unsigned)y >= s->height ? (int)s->height - 1 : y;
    z = z < 0 ? 0 : (unsigned)z >= s->depth ? (int)s->depth - 1 : z;
  }
  return reinterpret_cast<T*>(s->begin() + ((long long)z * s->height + y) * (long long)s->pitch + x);
}
}  // namespace cudaops
#define CUDAOPS_SURFACE(name, y, z, ...)                                                                            \
  template <class T>                                                                                                \
  CUDAOPS_INLINE T name##read(cudaSurfaceObject_t s, __VA_ARGS__, cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) { \
    const T* at = cudaops::surface_at<T>(s, x, y, z, mode);                                                         \
    T nothing{};                                                                                                    \
    return at ? *at : nothing;                                                                                      \
  }                                                                                                                 \
  template <class T>                                                                                                \
  CUDAOPS_INLINE void name##read(T* to, cudaSurfaceObject_t s, __VA_ARGS__,                                         \
                                 cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                             \
    const T* at = cudaops::surface_at<T>(s, x, y, z, mode);                                                         \
    *to = T{};                                                                                                      \
    if (at) *to = *at;                                                                                              \
  }                                                                                                                 \
  template <class T>                                                                                                \
  CUDAOPS_INLINE void name##write(T value, cudaSurfaceObject_t s, __VA_ARGS__,                                      \
                                  cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                            \
    if (T* at = cudaops::surface_at<T>(s, x, y, z, mode)) *at = value;                                              \
  }
CUDAOPS_SURFACE(surf1D, 0, 0, int x)
CUDAOPS_SURFACE(surf2D, y, 0, int x, int y)
CUDAOPS_SURFACE(surf3D, y, z, int x, int y, int z)
CUDAOPS_SURFACE(surf1DLayered, 0, layer, int x, int layer)
CUDAOPS_SURFACE(surf2DLayered, y, layer, int x, int y, int layer)
#undef CUDAOPS_SURFACE
#include "macros_on.h"
