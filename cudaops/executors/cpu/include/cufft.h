// cuFFT's host functions, computed where they are called, in double precision: every stream lies in one
// memory. A transform of n elements takes n times the sum of n's prime factors. Nothing is normalised.
// Source: cuFFT API reference, "Data layout" and "Advanced data layout".
#pragma once
#include "cudaops/macros_off.h"
#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

#include "cuComplex.h"

#define CUFFT_VER_MAJOR 12
#define CUFFT_VER_MINOR 0
#define CUFFT_VER_PATCH 0
#define CUFFT_VERSION (CUFFT_VER_MAJOR * 1000 + CUFFT_VER_MINOR * 100 + CUFFT_VER_PATCH)
#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1

typedef enum cufftResult_t {
  CUFFT_SUCCESS = 0, CUFFT_INVALID_PLAN = 1, CUFFT_ALLOC_FAILED = 2, CUFFT_INVALID_TYPE = 3,
  CUFFT_INVALID_VALUE = 4, CUFFT_INTERNAL_ERROR = 5, CUFFT_EXEC_FAILED = 6, CUFFT_SETUP_FAILED = 7,
  CUFFT_INVALID_SIZE = 8, CUFFT_UNALIGNED_DATA = 9, CUFFT_INCOMPLETE_PARAMETER_LIST = 10, CUFFT_INVALID_DEVICE = 11,
  CUFFT_PARSE_ERROR = 12, CUFFT_NO_WORKSPACE = 13, CUFFT_NOT_IMPLEMENTED = 14, CUFFT_LICENSE_ERROR = 15,
  CUFFT_NOT_SUPPORTED = 16
} cufftResult;
typedef enum cufftType_t {
  CUFFT_C2C = 0x29, CUFFT_R2C = 0x2a, CUFFT_C2R = 0x2c, CUFFT_Z2Z = 0x69, CUFFT_D2Z = 0x6a, CUFFT_Z2D = 0x6c
} cufftType;
typedef int cufftHandle;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;

namespace cudaops {
namespace fft {

struct Number { double re, im; };
using Numbers = std::vector<Number>;

// Of one side of a plan: where the element (x, y, z) of a transform lies. Ranks below 3 have leading ones.
struct Layout {
  long long embed[3], stride, distance;
  long long at(long long batch, long long x, long long y, long long z) const {
    return batch * distance + ((x * embed[1] + y) * embed[2] + z) * stride;
  }
};

struct Plan {
  bool made;
  cufftType type;
  long long n[3];
  bool basic;  // the layout is the usual one, which depends on whether the transform is in place
  Layout in, out;
  int batch;
  cudaStream_t stream;
};

inline std::map<cufftHandle, Plan>& plans() {
  static std::map<cufftHandle, Plan> all;
  return all;
}
inline Plan* plan_of(cufftHandle handle) {
  auto found = plans().find(handle);
  return found == plans().end() ? nullptr : &found->second;
}

inline bool of_double(cufftType type) { return (type & 0x40) != 0; }
inline bool from_real(cufftType type) { return type == CUFFT_R2C || type == CUFFT_D2Z; }
inline bool to_real(cufftType type) { return type == CUFFT_C2R || type == CUFFT_Z2D; }

// One side's usual layout. `half`: its last dimension holds the n / 2 + 1 elements that are not conjugates of
// others; `padded`: it holds reals, in the memory of those.
inline Layout basic_layout(const Plan& plan, bool half, bool padded) {
  long long last = half ? plan.n[2] / 2 + 1 : padded ? 2 * (plan.n[2] / 2 + 1) : plan.n[2];
  return {{plan.n[0], plan.n[1], last}, 1, plan.n[0] * plan.n[1] * last};
}

inline cufftResult make(cufftHandle handle, int rank, const long long* n, const long long* inembed, long long istride,
                        long long idist, const long long* onembed, long long ostride, long long odist, cufftType type,
                        int batch, size_t* work_bytes) {
  Plan* plan = plan_of(handle);
  if (plan == nullptr || plan->made) return CUFFT_INVALID_PLAN;
  if (rank < 1 || rank > 3 || batch < 1) return rank < 1 || rank > 3 ? CUFFT_INVALID_VALUE : CUFFT_INVALID_SIZE;
  bool halves = from_real(type) || to_real(type);
  if (!halves && type != CUFFT_C2C && type != CUFFT_Z2Z) return CUFFT_INVALID_TYPE;
  *plan = {true, type, {1, 1, 1}, inembed == nullptr || onembed == nullptr, {}, {}, batch, plan->stream};
  plan->in = {{1, 1, 1}, istride, idist};
  plan->out = {{1, 1, 1}, ostride, odist};
  for (int i = 0; i < rank; ++i) {
    if (n[i] < 1) return CUFFT_INVALID_SIZE;
    plan->n[3 - rank + i] = n[i];
    if (plan->basic) continue;
    plan->in.embed[3 - rank + i] = inembed[i];
    plan->out.embed[3 - rank + i] = onembed[i];
  }
  if (work_bytes != nullptr) *work_bytes = 0;
  return CUFFT_SUCCESS;
}

// The discrete Fourier transform of n elements, `step` apart in `in`: one for every residue modulo n's smallest
// prime factor, combined. `roots`: the `all` powers of exp(direction 2 pi i / all).
inline void transform(const Number* in, Number* out, size_t n, size_t step, const Numbers& roots, Numbers& held) {
  if (n == 1) { *out = *in; return; }
  size_t factor = 2;
  while (n % factor != 0) factor = factor * factor > n ? n : factor + 1;
  size_t part = n / factor, all = roots.size(), apart = all / n;
  for (size_t r = 0; r < factor; ++r) transform(in + r * step, out + r * part, part, step * factor, roots, held);
  for (size_t k = 0; k < part; ++k) {
    for (size_t r = 0; r < factor; ++r) held[r] = out[r * part + k];
    for (size_t q = 0; q < factor; ++q) {
      Number sum = held[0];
      size_t turn = (k + q * part) * apart, at = 0;
      for (size_t r = 1; r < factor; ++r) {
        at += turn;
        if (at >= all) at -= all;
        sum.re += held[r].re * roots[at].re - held[r].im * roots[at].im;
        sum.im += held[r].re * roots[at].im + held[r].im * roots[at].re;
      }
      out[q * part + k] = sum;
    }
  }
}

// Of all elements of an array, along one of its dimensions.
inline void transform_along(Numbers& elements, size_t n, size_t apart, int direction) {
  if (n == 1) return;
  Numbers roots(n), held(n), line(n), result(n);
  for (size_t i = 0; i < n; ++i) {
    double angle = direction * 2 * 3.14159265358979323846 * (double)i / (double)n;
    roots[i] = {std::cos(angle), std::sin(angle)};
  }
  for (size_t first = 0; first < elements.size(); ++first) {
    if (first / apart % n != 0) continue;
    for (size_t i = 0; i < n; ++i) line[i] = elements[first + i * apart];
    transform(line.data(), result.data(), n, 1, roots, held);
    for (size_t i = 0; i < n; ++i) elements[first + i * apart] = result[i];
  }
}

template <class T> Number read(const T& value) { return {(double)value.x, (double)value.y}; }
inline Number read(float value) { return {value, 0}; }
inline Number read(double value) { return {value, 0}; }
template <class T> void write(T& to, Number value) { to.x = value.re, to.y = value.im; }
inline void write(float& to, Number value) { to = (float)value.re; }
inline void write(double& to, Number value) { to = value.re; }

// no kernel: its accesses are not checked
template <class In, class Out>
__attribute__((no_sanitize("thread"))) void run(const Plan& plan, const In* in, Out* out, int direction) {
  long long nx = plan.n[0], ny = plan.n[1], nz = plan.n[2], half = nz / 2 + 1;
  bool real_in = from_real(plan.type), real_out = to_real(plan.type), same = (const void*)in == (const void*)out;
  Layout from = plan.basic ? basic_layout(plan, real_out, real_in && same) : plan.in;
  Layout to = plan.basic ? basic_layout(plan, real_in, real_out && same) : plan.out;
  std::vector<Numbers> all(plan.batch, Numbers(nx * ny * nz));
  for (int b = 0; b < plan.batch; ++b)
    for (long long x = 0; x < nx; ++x)
      for (long long y = 0; y < ny; ++y)
        for (long long z = 0; z < nz; ++z) {
          bool mirrored = real_out && z >= half;
          Number value = mirrored ? read(in[from.at(b, (nx - x) % nx, (ny - y) % ny, nz - z)])
                                  : read(in[from.at(b, x, y, z)]);
          all[b][(x * ny + y) * nz + z] = {value.re, mirrored ? -value.im : value.im};
        }
  for (int b = 0; b < plan.batch; ++b) {
    transform_along(all[b], nz, 1, direction);
    transform_along(all[b], ny, nz, direction);
    transform_along(all[b], nx, ny * nz, direction);
    for (long long x = 0; x < nx; ++x)
      for (long long y = 0; y < ny; ++y)
        for (long long z = 0; z < (real_in ? half : nz); ++z)
          write(out[to.at(b, x, y, z)], all[b][(x * ny + y) * nz + z]);
  }
}

template <class In, class Out>
cufftResult execute(cufftHandle handle, cufftType type, const In* in, Out* out, int direction) {
  Plan* plan = plan_of(handle);
  if (plan == nullptr || !plan->made) return CUFFT_INVALID_PLAN;
  if (plan->type != type) return CUFFT_INVALID_TYPE;
  if (in == nullptr || out == nullptr || (direction != CUFFT_FORWARD && direction != CUFFT_INVERSE))
    return CUFFT_INVALID_VALUE;
  cudaStreamCaptureStatus status;  // what is captured is to be done by a graph, later: nothing here can wait
  if (cudaStreamIsCapturing(plan->stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone)
    return CUFFT_NOT_SUPPORTED;
  run(*plan, in, out, direction);
  cudaops::touch();
  return CUFFT_SUCCESS;
}

}  // namespace fft
}  // namespace cudaops

inline cufftResult cufftCreate(cufftHandle* made) {
  static cufftHandle last = 0;
  cudaops::fft::plans()[*made = ++last] = {};
  return CUFFT_SUCCESS;
}
inline cufftResult cufftDestroy(cufftHandle plan) {
  return cudaops::fft::plans().erase(plan) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}

template <class Size>
inline cufftResult cudaopsMakePlan(cufftHandle plan, int rank, Size* n, Size* inembed, Size istride, Size idist,
                                   Size* onembed, Size ostride, Size odist, cufftType type, Size batch,
                                   size_t* work_bytes) {
  if (n == nullptr || rank < 1 || rank > 3) return CUFFT_INVALID_VALUE;
  long long sizes[3][3] = {};
  for (int i = 0; i < rank; ++i) {
    sizes[0][i] = n[i];
    if (inembed != nullptr) sizes[1][i] = inembed[i];
    if (onembed != nullptr) sizes[2][i] = onembed[i];
  }
  return cudaops::fft::make(plan, rank, sizes[0], inembed ? sizes[1] : nullptr, istride, idist,
                            onembed ? sizes[2] : nullptr, ostride, odist, type, (int)batch, work_bytes);
}
inline cufftResult cufftMakePlanMany(cufftHandle plan, int rank, int* n, int* inembed, int istride, int idist,
                                     int* onembed, int ostride, int odist, cufftType type, int batch,
                                     size_t* work_bytes) {
  return cudaopsMakePlan(plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, work_bytes);
}
inline cufftResult cufftMakePlanMany64(cufftHandle plan, int rank, long long* n, long long* inembed, long long istride,
                                       long long idist, long long* onembed, long long ostride, long long odist,
                                       cufftType type, long long batch, size_t* work_bytes) {
  return cudaopsMakePlan(plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, work_bytes);
}
inline cufftResult cufftMakePlan1d(cufftHandle plan, int nx, cufftType type, int batch, size_t* work_bytes) {
  return cufftMakePlanMany(plan, 1, &nx, nullptr, 1, 0, nullptr, 1, 0, type, batch, work_bytes);
}
inline cufftResult cufftMakePlan2d(cufftHandle plan, int nx, int ny, cufftType type, size_t* work_bytes) {
  int n[] = {nx, ny};
  return cufftMakePlanMany(plan, 2, n, nullptr, 1, 0, nullptr, 1, 0, type, 1, work_bytes);
}
inline cufftResult cufftMakePlan3d(cufftHandle plan, int nx, int ny, int nz, cufftType type, size_t* work_bytes) {
  int n[] = {nx, ny, nz};
  return cufftMakePlanMany(plan, 3, n, nullptr, 1, 0, nullptr, 1, 0, type, 1, work_bytes);
}

#define CUDAOPS_PLAN(name, parameters, ...)                                                     \
  inline cufftResult cufftPlan##name parameters {                                               \
    size_t work;                                                                                \
    cufftResult result = cufftCreate(plan);                                                     \
    if (result == CUFFT_SUCCESS) result = cufftMakePlan##name(*plan, __VA_ARGS__, &work);       \
    if (result != CUFFT_SUCCESS) cufftDestroy(*plan);                                           \
    return result;                                                                              \
  }
CUDAOPS_PLAN(1d, (cufftHandle* plan, int nx, cufftType type, int batch), nx, type, batch)
CUDAOPS_PLAN(2d, (cufftHandle* plan, int nx, int ny, cufftType type), nx, ny, type)
CUDAOPS_PLAN(3d, (cufftHandle* plan, int nx, int ny, int nz, cufftType type), nx, ny, nz, type)
CUDAOPS_PLAN(Many, (cufftHandle* plan, int rank, int* n, int* inembed, int istride, int idist, int* onembed,
                    int ostride, int odist, cufftType type, int batch),
             rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch)
#undef CUDAOPS_PLAN

#define CUDAOPS_EXEC(name, type, In, Out, direction, ...)                                                   \
  inline cufftResult cufftExec##name(cufftHandle plan, In* in, Out* out __VA_ARGS__) {                      \
    return cudaops::fft::execute(plan, type, in, out, direction);                                           \
  }
CUDAOPS_EXEC(C2C, CUFFT_C2C, cufftComplex, cufftComplex, direction, , int direction)
CUDAOPS_EXEC(Z2Z, CUFFT_Z2Z, cufftDoubleComplex, cufftDoubleComplex, direction, , int direction)
CUDAOPS_EXEC(R2C, CUFFT_R2C, cufftReal, cufftComplex, CUFFT_FORWARD)
CUDAOPS_EXEC(D2Z, CUFFT_D2Z, cufftDoubleReal, cufftDoubleComplex, CUFFT_FORWARD)
CUDAOPS_EXEC(C2R, CUFFT_C2R, cufftComplex, cufftReal, CUFFT_INVERSE)
CUDAOPS_EXEC(Z2D, CUFFT_Z2D, cufftDoubleComplex, cufftDoubleReal, CUFFT_INVERSE)
#undef CUDAOPS_EXEC

inline cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) {
  cudaops::fft::Plan* known = cudaops::fft::plan_of(plan);
  if (known == nullptr) return CUFFT_INVALID_PLAN;
  known->stream = stream;
  return CUFFT_SUCCESS;
}
// No transform needs memory of the caller's.
inline cufftResult cufftSetAutoAllocation(cufftHandle plan, int) {
  return cudaops::fft::plan_of(plan) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}
inline cufftResult cufftSetWorkArea(cufftHandle plan, void*) { return cufftSetAutoAllocation(plan, 0); }
inline cufftResult cufftGetSize(cufftHandle plan, size_t* work_bytes) {
  *work_bytes = 0;
  return cufftSetAutoAllocation(plan, 0);
}
inline cufftResult cufftEstimate1d(int, cufftType, int, size_t* work_bytes) {
  *work_bytes = 0;
  return CUFFT_SUCCESS;
}
inline cufftResult cufftEstimate2d(int, int, cufftType, size_t* work_bytes) {
  return cufftEstimate1d(1, CUFFT_C2C, 1, work_bytes);
}
inline cufftResult cufftEstimate3d(int, int, int, cufftType, size_t* work_bytes) {
  return cufftEstimate1d(1, CUFFT_C2C, 1, work_bytes);
}
inline cufftResult cufftGetVersion(int* version) {
  *version = CUFFT_VERSION;
  return CUFFT_SUCCESS;
}
#include "cudaops/macros_on.h"
