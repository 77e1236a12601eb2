// cuBLAS' host API, computed where it is called: every stream and scalar lies in one memory. Complex
// numbers are left out.
#pragma once
#include "cudaops/macros_off.h"
#include <cmath>
#include <cstddef>

#include "cuComplex.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "library_types.h"

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH)

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15, CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1, CUBLAS_FILL_MODE_FULL = 2 } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum {
  CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2, CUBLAS_OP_HERMITAN = 2, CUBLAS_OP_CONJG = 3
} cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;
typedef enum {
  CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_ALGO0 = 0, CUBLAS_GEMM_ALGO1, CUBLAS_GEMM_ALGO2,
  CUBLAS_GEMM_ALGO3, CUBLAS_GEMM_ALGO4, CUBLAS_GEMM_ALGO5, CUBLAS_GEMM_ALGO6, CUBLAS_GEMM_ALGO7,
  CUBLAS_GEMM_ALGO8, CUBLAS_GEMM_ALGO9, CUBLAS_GEMM_ALGO10, CUBLAS_GEMM_ALGO11, CUBLAS_GEMM_ALGO12,
  CUBLAS_GEMM_ALGO13, CUBLAS_GEMM_ALGO14, CUBLAS_GEMM_ALGO15, CUBLAS_GEMM_ALGO16, CUBLAS_GEMM_ALGO17,
  CUBLAS_GEMM_ALGO18, CUBLAS_GEMM_ALGO19, CUBLAS_GEMM_ALGO20, CUBLAS_GEMM_ALGO21, CUBLAS_GEMM_ALGO22,
  CUBLAS_GEMM_ALGO23, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100, CUBLAS_GEMM_ALGO1_TENSOR_OP, CUBLAS_GEMM_ALGO2_TENSOR_OP,
  CUBLAS_GEMM_ALGO3_TENSOR_OP, CUBLAS_GEMM_ALGO4_TENSOR_OP, CUBLAS_GEMM_ALGO5_TENSOR_OP,
  CUBLAS_GEMM_ALGO6_TENSOR_OP, CUBLAS_GEMM_ALGO7_TENSOR_OP, CUBLAS_GEMM_ALGO8_TENSOR_OP,
  CUBLAS_GEMM_ALGO9_TENSOR_OP, CUBLAS_GEMM_ALGO10_TENSOR_OP, CUBLAS_GEMM_ALGO11_TENSOR_OP,
  CUBLAS_GEMM_ALGO12_TENSOR_OP, CUBLAS_GEMM_ALGO13_TENSOR_OP, CUBLAS_GEMM_ALGO14_TENSOR_OP,
  CUBLAS_GEMM_ALGO15_TENSOR_OP, CUBLAS_GEMM_AUTOTUNE = 999
} cublasGemmAlgo_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_FP32_EMULATED_BF16X9_MATH = 4, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32I_PEDANTIC = 73, CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77, CUBLAS_COMPUTE_32F_EMULATED_16BFX9 = 78
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;

struct cublasContext {
  cudaStream_t stream;
  cublasPointerMode_t pointer_mode;
  cublasAtomicsMode_t atomics_mode;
  cublasMath_t math_mode;
};
typedef struct cublasContext* cublasHandle_t;

namespace cudaops {
namespace blas {

// A matrix or, as its first column, a vector. Of one with a `part` only the lower (1) or upper (-1)
// triangle is stored: what is read of the other is its mirror image.
template <class T>
struct View {
  T* data;
  std::ptrdiff_t down, right;
  int part;

  bool stores(std::ptrdiff_t i, std::ptrdiff_t j) const { return part * (i - j) >= 0; }
  T& operator()(std::ptrdiff_t i, std::ptrdiff_t j = 0) const {
    return stores(i, j) ? data[i * down + j * right] : data[j * down + i * right];
  }
  View transposed() const { return {data, right, down, -part}; }
};

template <class T>
View<T> matrix(T* data, int ld, cublasOperation_t op = CUBLAS_OP_N) {
  View<T> stored{data, 1, ld, 0};
  return op == CUBLAS_OP_N ? stored : stored.transposed();
}
template <class T>
View<T> triangle(T* data, int ld, cublasFillMode_t uplo) {
  return {data, 1, ld, uplo == CUBLAS_FILL_MODE_LOWER ? 1 : -1};
}
template <class T>
View<T> vector(T* data, int n, int increment) {
  std::ptrdiff_t first = increment < 0 && n > 0 ? (std::ptrdiff_t)(1 - n) * increment : 0;
  return {data + first, increment, 0, 0};
}

// Whether what is called now is to be done by a graph, later: nothing here can wait.
inline bool is_captured(cublasHandle_t handle) {
  cudaStreamCaptureStatus status;
  return cudaStreamIsCapturing(handle->stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

inline bool spans(int ld, int rows) { return rows >= 0 && ld >= 1 && ld >= rows; }
inline bool conform(cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k, int lda, int ldb, int ldc) {
  return m >= 0 && n >= 0 && k >= 0 && spans(lda, opa == CUBLAS_OP_N ? m : k) &&
         spans(ldb, opb == CUBLAS_OP_N ? k : n) && spans(ldc, m);
}

#define CUDAOPS_UNCHECKED __attribute__((no_sanitize("thread")))  // no kernel: its accesses are not checked

// To `sums` of a strip of rows, what `depth` of its columns add, each times its factor. The height is
// fixed, so that all of it is done in whole vectors.
constexpr int strip_rows = 64;
template <class Sum>
CUDAOPS_UNCHECKED void add_columns(Sum* sums, const Sum* strip, const Sum* factors, int depth) {
  Sum held[strip_rows];
  for (int i = 0; i < strip_rows; ++i) held[i] = sums[i];
  for (const Sum* column = strip; depth-- > 0; column += strip_rows) {
    Sum factor = *factors++;
    for (std::ptrdiff_t i = 0; i < strip_rows; ++i) held[i] += column[i] * factor;
  }
  for (int i = 0; i < strip_rows; ++i) sums[i] = held[i];
}

// c = alpha a b + beta c, by packed blocks of both operands that stay in a cache.
template <class Sum, class A, class B, class C>
CUDAOPS_UNCHECKED void multiply(int m, int n, int k, Sum alpha, View<A> a, View<B> b, Sum beta, View<C> c) {
  constexpr int most = 128;
  Sum strip[most * strip_rows] = {}, sums[most * strip_rows], factors[most];
  if (alpha == 0) k = 0;
  for (int top = 0; top < m; top += strip_rows)
    for (int left = 0; left < n; left += most) {
      int rows = m - top < strip_rows ? m - top : strip_rows, columns = n - left < most ? n - left : most;
      for (int i = 0; i < columns * strip_rows; ++i) sums[i] = 0;
      for (int first = 0; first < k; first += most) {
        int depth = k - first < most ? k - first : most;
        for (int l = 0; l < depth; ++l)
          for (int i = 0; i < rows; ++i) strip[l * strip_rows + i] = (Sum)a(top + i, first + l);
        for (int j = 0; j < columns; ++j) {
          for (int l = 0; l < depth; ++l) factors[l] = (Sum)b(first + l, left + j);
          add_columns(sums + j * strip_rows, strip, factors, depth);
        }
      }
      for (int j = 0; j < columns; ++j)
        for (int i = 0; i < rows; ++i)
          if (c.stores(top + i, left + j)) {
            C& to = c(top + i, left + j);
            Sum product = alpha * sums[j * strip_rows + i];
            to = (C)(beta == 0 ? product : product + beta * (Sum)to);
          }
    }
}
#undef CUDAOPS_UNCHECKED

// b = alpha times the solution x of a x = b, `a` being a triangle that is read along its columns where
// they lie in one piece, and along its rows where those do.
template <class T>
void solve(bool lower, bool unit, int n, int columns, T alpha, View<const T> a, View<T> b) {
  T* x = new T[n];
  for (int j = 0; j < columns; ++j) {
    for (int i = 0; i < n; ++i) x[i] = alpha == 0 ? 0 : alpha * b(i, j);
    for (int step = 0; alpha != 0 && step < n; ++step) {
      int l = lower ? step : n - 1 - step;
      int solved = lower ? 0 : l + 1, left = lower ? l + 1 : 0;
      if (a.down != 1)
        for (int i = solved; i < solved + step; ++i) x[l] -= a(l, i) * x[i];
      if (!unit) x[l] /= a(l, l);
      if (a.down == 1)
        for (int i = left; i < left + n - 1 - step; ++i) x[i] -= x[l] * a(i, l);
    }
    for (int i = 0; i < n; ++i) b(i, j) = x[i];
  }
  delete[] x;
}

// Where the absolute value is largest, or smallest, counted from 1.
template <class T, class Before>
int extreme(int n, const T* x, int increment, Before before) {
  int best = 0;
  for (int i = 1; increment > 0 && i < n; ++i)
    if (before(std::fabs(x[(std::ptrdiff_t)i * increment]), std::fabs(x[(std::ptrdiff_t)best * increment]))) best = i;
  return n > 0 && increment > 0 ? best + 1 : 0;
}

inline cublasStatus_t copy(int rows, int columns, int bytes, const void* from, int ld_from, void* to, int ld_to,
                           cudaMemcpyKind kind) {
  if (columns < 0 || bytes <= 0 || !spans(ld_from, rows) || !spans(ld_to, rows)) return CUBLAS_STATUS_INVALID_VALUE;
  std::size_t size = bytes, width = rows * size;
  cudaError_t error = rows == ld_from && rows == ld_to
                          ? cudaMemcpy(to, from, width * columns, kind)
                          : cudaMemcpy2D(to, ld_to * size, from, ld_from * size, width, columns, kind);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

// In what a product is computed; once named by the type of an element.
struct Compute {
  cublasComputeType_t type;
  Compute(cublasComputeType_t given) : type(given) {}
  Compute(cudaDataType of)
      : type(of == CUDA_R_32F   ? CUBLAS_COMPUTE_32F
             : of == CUDA_R_64F ? CUBLAS_COMPUTE_64F
             : of == CUDA_R_16F ? CUBLAS_COMPUTE_16F
                                : CUBLAS_COMPUTE_32I) {}
  bool in(cublasComputeType_t one) const { return type == one || type == one + 1; }  // then the pedantic kind
  bool in_float() const { return !in(CUBLAS_COMPUTE_16F) && !in(CUBLAS_COMPUTE_64F) && !in(CUBLAS_COMPUTE_32I); }
};

struct StatusRow {
  cublasStatus_t code;
  const char *name, *text;
};
inline const StatusRow& row_of(cublasStatus_t status) {
#define CUDAOPS_ROW(code, text) {code, #code, text}
  static const StatusRow rows[] = {
      CUDAOPS_ROW(CUBLAS_STATUS_SUCCESS, "success"),
      CUDAOPS_ROW(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
      CUDAOPS_ROW(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"),
      CUDAOPS_ROW(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function"),
      CUDAOPS_ROW(CUBLAS_STATUS_ARCH_MISMATCH, "the device lacks a feature that is needed"),
      CUDAOPS_ROW(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed"),
      CUDAOPS_ROW(CUBLAS_STATUS_EXECUTION_FAILED, "the function failed to launch on the GPU"),
      CUDAOPS_ROW(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed"),
      CUDAOPS_ROW(CUBLAS_STATUS_NOT_SUPPORTED, "the requested functionality is not supported"),
      CUDAOPS_ROW(CUBLAS_STATUS_LICENSE_ERROR, "a license error was detected"),
  };
#undef CUDAOPS_ROW
  static const StatusRow unknown{CUBLAS_STATUS_SUCCESS, "unrecognized error code", "unrecognized error code"};
  for (auto& row : rows)
    if (row.code == status) return row;
  return unknown;
}

}  // namespace blas
}  // namespace cudaops

// A function by both of its names. `valid`: of the arguments.
#define CUDAOPS_OF_HANDLE(name, valid, parameters, ...)         \
  inline cublasStatus_t name(CUDAOPS_WITH_HANDLE parameters) {  \
    namespace blas = cudaops::blas;                             \
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;          \
    if (!(valid)) return CUBLAS_STATUS_INVALID_VALUE;           \
    __VA_ARGS__                                                 \
    return CUBLAS_STATUS_SUCCESS;                               \
  }                                                             \
  static constexpr auto& name##_v2 = name;
#define CUDAOPS_WITH_HANDLE(...) cublasHandle_t handle, __VA_ARGS__
// One that computes.
#define CUDAOPS_BLAS(name, valid, parameters, ...)                                     \
  CUDAOPS_OF_HANDLE(name, valid, parameters,                                           \
                    if (blas::is_captured(handle)) return CUBLAS_STATUS_NOT_SUPPORTED; \
                    __VA_ARGS__                                                        \
                    cudaops::touch();)

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasContext{};
  return CUBLAS_STATUS_SUCCESS;
}
static constexpr auto& cublasCreate_v2 = cublasCreate;
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
static constexpr auto& cublasDestroy_v2 = cublasDestroy;
CUDAOPS_OF_HANDLE(cublasGetVersion, version, (int* version), *version = CUBLAS_VERSION;)
CUDAOPS_OF_HANDLE(cublasSetWorkspace, true, (void*, std::size_t), ;)
#define CUDAOPS_PROPERTY(name, type, member)                                         \
  CUDAOPS_OF_HANDLE(cublasSet##name, true, (type value), handle->member = value;)    \
  CUDAOPS_OF_HANDLE(cublasGet##name, value, (type* value), *value = handle->member;)
CUDAOPS_PROPERTY(Stream, cudaStream_t, stream)
CUDAOPS_PROPERTY(PointerMode, cublasPointerMode_t, pointer_mode)
CUDAOPS_PROPERTY(AtomicsMode, cublasAtomicsMode_t, atomics_mode)
CUDAOPS_PROPERTY(MathMode, cublasMath_t, math_mode)
#undef CUDAOPS_PROPERTY

inline cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  if (!value || type < MAJOR_VERSION || type > PATCH_LEVEL) return CUBLAS_STATUS_INVALID_VALUE;
  *value = type == MAJOR_VERSION ? CUBLAS_VER_MAJOR : type == MINOR_VERSION ? CUBLAS_VER_MINOR : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}
inline const char* cublasGetStatusName(cublasStatus_t status) { return cudaops::blas::row_of(status).name; }
inline const char* cublasGetStatusString(cublasStatus_t status) { return cudaops::blas::row_of(status).text; }

#define CUDAOPS_TRANSFER(way, kind)                                                                        \
  inline cublasStatus_t cublas##way##Matrix(int rows, int columns, int bytes, const void* a, int lda,      \
                                            void* b, int ldb) {                                            \
    return cudaops::blas::copy(rows, columns, bytes, a, lda, b, ldb, kind);                                \
  }                                                                                                        \
  inline cublasStatus_t cublas##way##Vector(int n, int bytes, const void* x, int incx, void* y, int incy) {\
    return cudaops::blas::copy(1, n, bytes, x, incx, y, incy, kind);                                       \
  }                                                                                                        \
  inline cublasStatus_t cublas##way##MatrixAsync(int rows, int columns, int bytes, const void* a, int lda, \
                                                 void* b, int ldb, cudaStream_t) {                         \
    return cudaops::blas::copy(rows, columns, bytes, a, lda, b, ldb, kind);                                \
  }                                                                                                        \
  inline cublasStatus_t cublas##way##VectorAsync(int n, int bytes, const void* x, int incx, void* y,       \
                                                 int incy, cudaStream_t) {                                 \
    return cudaops::blas::copy(1, n, bytes, x, incx, y, incy, kind);                                       \
  }
CUDAOPS_TRANSFER(Set, cudaMemcpyHostToDevice)
CUDAOPS_TRANSFER(Get, cudaMemcpyDeviceToHost)
#undef CUDAOPS_TRANSFER

#define CUDAOPS_T float
#define CUDAOPS_SUM float
#define CUDAOPS_NAME(name) cublasS##name
#define CUDAOPS_INDEX_NAME(name) cublasIs##name
#include "cudaops/cublas_type.h"

#define CUDAOPS_T double
#define CUDAOPS_SUM double
#define CUDAOPS_NAME(name) cublasD##name
#define CUDAOPS_INDEX_NAME(name) cublasId##name
#include "cudaops/cublas_type.h"

#define CUDAOPS_T __half
#define CUDAOPS_SUM float
#define CUDAOPS_NAME(name) cublasH##name
#include "cudaops/cublas_type.h"

CUDAOPS_BLAS(cublasGemmStridedBatchedEx,
             batches >= 0 && blas::conform(opa, opb, m, n, k, lda, ldb, ldc),
             (cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k, const void* alpha, const void* a,
              cudaDataType type_a, int lda, long long step_a, const void* b, cudaDataType type_b, int ldb,
              long long step_b, const void* beta, void* c, cudaDataType type_c, int ldc, long long step_c, int batches,
              cudaops::blas::Compute compute, cublasGemmAlgo_t),
  auto run = [=](auto sum, auto scale, auto in, auto out) {
    using Sum = decltype(sum);
    using Scale = decltype(scale);
    using In = decltype(in);
    using Out = decltype(out);
    for (long long i = 0; i < batches; ++i)
      blas::multiply<Sum>(m, n, k, (Sum)*(const Scale*)alpha, blas::matrix((const In*)a + i * step_a, lda, opa),
                          blas::matrix((const In*)b + i * step_b, ldb, opb), (Sum)*(const Scale*)beta,
                          blas::matrix((Out*)c + i * step_c, ldc));
  };
  bool of_half = compute.in(CUBLAS_COMPUTE_16F);
  bool of_float = compute.in_float();
  bool of_double = compute.in(CUBLAS_COMPUTE_64F);
  auto are = [=](bool computed, cudaDataType in, cudaDataType out) {
    return computed && type_a == in && type_b == in && type_c == out;
  };
  if (are(of_float, CUDA_R_32F, CUDA_R_32F)) run(float(), float(), float(), float());
  else if (are(of_float, CUDA_R_16F, CUDA_R_16F)) run(float(), float(), __half(), __half());
  else if (are(of_float, CUDA_R_16F, CUDA_R_32F)) run(float(), float(), __half(), float());
  else if (are(of_float, CUDA_R_16BF, CUDA_R_16BF)) run(float(), float(), __nv_bfloat16(), __nv_bfloat16());
  else if (are(of_float, CUDA_R_16BF, CUDA_R_32F)) run(float(), float(), __nv_bfloat16(), float());
  else if (are(of_half, CUDA_R_16F, CUDA_R_16F)) run(float(), __half(), __half(), __half());
  else if (are(of_double, CUDA_R_64F, CUDA_R_64F)) run(double(), double(), double(), double());
  else return CUBLAS_STATUS_NOT_SUPPORTED;
)
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n,
                                   int k, const void* alpha, const void* a, cudaDataType type_a, int lda,
                                   const void* b, cudaDataType type_b, int ldb, const void* beta, void* c,
                                   cudaDataType type_c, int ldc, cudaops::blas::Compute compute,
                                   cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, opa, opb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c,
                                    type_c, ldc, 0, 1, compute, algo);
}
#undef CUDAOPS_BLAS
#undef CUDAOPS_OF_HANDLE
#undef CUDAOPS_WITH_HANDLE
#include "cudaops/macros_on.h"
