// cuBLAS' functions of one type. Included for float, double and half: the includer says CUDAOPS_T, in
// what type products are summed and how functions are named. Half has no more than products.

#define CUDAOPS_SHAPE cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k
CUDAOPS_BLAS(CUDAOPS_NAME(gemm), blas::conform(opa, opb, m, n, k, lda, ldb, ldc),
             (CUDAOPS_SHAPE, const CUDAOPS_T* alpha, const CUDAOPS_T* a, int lda, const CUDAOPS_T* b, int ldb,
              const CUDAOPS_T* beta, CUDAOPS_T* c, int ldc),
  blas::multiply<CUDAOPS_SUM>(m, n, k, *alpha, blas::matrix(a, lda, opa), blas::matrix(b, ldb, opb), *beta,
                              blas::matrix(c, ldc));
)
CUDAOPS_BLAS(CUDAOPS_NAME(gemmStridedBatched), batches >= 0 && blas::conform(opa, opb, m, n, k, lda, ldb, ldc),
             (CUDAOPS_SHAPE, const CUDAOPS_T* alpha, const CUDAOPS_T* a, int lda, long long step_a, const CUDAOPS_T* b,
              int ldb, long long step_b, const CUDAOPS_T* beta, CUDAOPS_T* c, int ldc, long long step_c, int batches),
  for (long long i = 0; i < batches; ++i)
    blas::multiply<CUDAOPS_SUM>(m, n, k, *alpha, blas::matrix(a + i * step_a, lda, opa),
                                blas::matrix(b + i * step_b, ldb, opb), *beta, blas::matrix(c + i * step_c, ldc));
)
CUDAOPS_BLAS(CUDAOPS_NAME(gemmBatched), batches >= 0 && blas::conform(opa, opb, m, n, k, lda, ldb, ldc),
             (CUDAOPS_SHAPE, const CUDAOPS_T* alpha, const CUDAOPS_T* const a[], int lda, const CUDAOPS_T* const b[],
              int ldb, const CUDAOPS_T* beta, CUDAOPS_T* const c[], int ldc, int batches),
  for (int i = 0; i < batches; ++i)
    blas::multiply<CUDAOPS_SUM>(m, n, k, *alpha, blas::matrix(a[i], lda, opa), blas::matrix(b[i], ldb, opb), *beta,
                                blas::matrix(c[i], ldc));
)
#undef CUDAOPS_SHAPE

#ifdef CUDAOPS_INDEX_NAME
#define CUDAOPS_X const CUDAOPS_T *x, int incx
#define CUDAOPS_X_OUT CUDAOPS_T *x, int incx
#define CUDAOPS_Y_OUT CUDAOPS_T *y, int incy
CUDAOPS_BLAS(CUDAOPS_NAME(axpy), true, (int n, const CUDAOPS_T* alpha, CUDAOPS_X, CUDAOPS_Y_OUT),
  auto from = blas::vector(x, n, incx);
  auto to = blas::vector(y, n, incy);
  for (int i = 0; i < n; ++i) to(i) += *alpha * from(i);
)
CUDAOPS_BLAS(CUDAOPS_NAME(copy), true, (int n, CUDAOPS_X, CUDAOPS_Y_OUT),
  auto from = blas::vector(x, n, incx);
  auto to = blas::vector(y, n, incy);
  for (int i = 0; i < n; ++i) to(i) = from(i);
)
CUDAOPS_BLAS(CUDAOPS_NAME(swap), true, (int n, CUDAOPS_X_OUT, CUDAOPS_Y_OUT),
  auto one = blas::vector(x, n, incx);
  auto other = blas::vector(y, n, incy);
  for (int i = 0; i < n; ++i) {
    CUDAOPS_T kept = one(i);
    one(i) = other(i);
    other(i) = kept;
  }
)
CUDAOPS_BLAS(CUDAOPS_NAME(rot), true, (int n, CUDAOPS_X_OUT, CUDAOPS_Y_OUT, const CUDAOPS_T* c, const CUDAOPS_T* s),
  auto one = blas::vector(x, n, incx);
  auto other = blas::vector(y, n, incy);
  for (int i = 0; i < n; ++i) {
    CUDAOPS_T kept = one(i);
    one(i) = *c * kept + *s * other(i);
    other(i) = *c * other(i) - *s * kept;
  }
)
CUDAOPS_BLAS(CUDAOPS_NAME(scal), true, (int n, const CUDAOPS_T* alpha, CUDAOPS_X_OUT),
  for (int i = 0; incx > 0 && i < n; ++i) x[(std::ptrdiff_t)i * incx] *= *alpha;
)
CUDAOPS_BLAS(CUDAOPS_NAME(dot), result, (int n, CUDAOPS_X, const CUDAOPS_T* y, int incy, CUDAOPS_T* result),
  auto one = blas::vector(x, n, incx);
  auto other = blas::vector(y, n, incy);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += (double)one(i) * (double)other(i);
  *result = (CUDAOPS_T)sum;
)
CUDAOPS_BLAS(CUDAOPS_NAME(asum), result, (int n, CUDAOPS_X, CUDAOPS_T* result),
  double sum = 0;
  for (int i = 0; incx > 0 && i < n; ++i) sum += std::fabs(x[(std::ptrdiff_t)i * incx]);
  *result = (CUDAOPS_T)sum;
)
CUDAOPS_BLAS(CUDAOPS_NAME(nrm2), result, (int n, CUDAOPS_X, CUDAOPS_T* result),
  int largest = blas::extreme(n, x, incx, [](CUDAOPS_T p, CUDAOPS_T q) { return p > q || p != p; });
  double scale = largest ? std::fabs(x[(std::ptrdiff_t)(largest - 1) * incx]) : 0;
  double sum = 0;
  for (int i = 0; scale + scale != scale && i < n; ++i) {  // neither zero nor infinite
    double part = x[(std::ptrdiff_t)i * incx] / scale;
    sum += part * part;
  }
  *result = (CUDAOPS_T)(scale + scale == scale ? scale : scale * std::sqrt(sum));
)
CUDAOPS_BLAS(CUDAOPS_INDEX_NAME(amax), result, (int n, CUDAOPS_X, int* result),
  *result = blas::extreme(n, x, incx, [](CUDAOPS_T p, CUDAOPS_T q) { return p > q; });
)
CUDAOPS_BLAS(CUDAOPS_INDEX_NAME(amin), result, (int n, CUDAOPS_X, int* result),
  *result = blas::extreme(n, x, incx, [](CUDAOPS_T p, CUDAOPS_T q) { return p < q; });
)

CUDAOPS_BLAS(CUDAOPS_NAME(gemv), n >= 0 && blas::spans(lda, m) && incx != 0 && incy != 0,
             (cublasOperation_t op, int m, int n, const CUDAOPS_T* alpha, const CUDAOPS_T* a, int lda, CUDAOPS_X,
              const CUDAOPS_T* beta, CUDAOPS_Y_OUT),
  int rows = op == CUBLAS_OP_N ? m : n;
  int columns = op == CUBLAS_OP_N ? n : m;
  if (rows == 0 || columns == 0) return CUBLAS_STATUS_SUCCESS;
  blas::multiply<CUDAOPS_T>(rows, 1, columns, *alpha, blas::matrix(a, lda, op), blas::vector(x, columns, incx), *beta,
                            blas::vector(y, rows, incy));
)
CUDAOPS_BLAS(CUDAOPS_NAME(symv), blas::spans(lda, n) && incx != 0 && incy != 0,
             (cublasFillMode_t uplo, int n, const CUDAOPS_T* alpha, const CUDAOPS_T* a, int lda, CUDAOPS_X,
              const CUDAOPS_T* beta, CUDAOPS_Y_OUT),
  blas::multiply<CUDAOPS_T>(n, 1, n, *alpha, blas::triangle(a, lda, uplo), blas::vector(x, n, incx), *beta,
                            blas::vector(y, n, incy));
)
CUDAOPS_BLAS(CUDAOPS_NAME(ger), n >= 0 && blas::spans(lda, m) && incx != 0 && incy != 0,
             (int m, int n, const CUDAOPS_T* alpha, CUDAOPS_X, const CUDAOPS_T* y, int incy, CUDAOPS_T* a, int lda),
  blas::multiply<CUDAOPS_T>(m, n, 1, *alpha, blas::vector(x, m, incx), blas::vector(y, n, incy).transposed(), 1,
                            blas::matrix(a, lda));
)
CUDAOPS_BLAS(CUDAOPS_NAME(trsv), blas::spans(lda, n) && incx != 0,
             (cublasFillMode_t uplo, cublasOperation_t op, cublasDiagType_t diag, int n, const CUDAOPS_T* a, int lda,
              CUDAOPS_X_OUT),
  bool lower = (uplo == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N);
  blas::solve<CUDAOPS_T>(lower, diag == CUBLAS_DIAG_UNIT, n, 1, 1, blas::matrix(a, lda, op), blas::vector(x, n, incx));
)

CUDAOPS_BLAS(CUDAOPS_NAME(symm), n >= 0 && blas::spans(lda, side == CUBLAS_SIDE_LEFT ? m : n) &&
             blas::spans(ldb, m) && blas::spans(ldc, m),
             (cublasSideMode_t side, cublasFillMode_t uplo, int m, int n, const CUDAOPS_T* alpha, const CUDAOPS_T* a,
              int lda, const CUDAOPS_T* b, int ldb, const CUDAOPS_T* beta, CUDAOPS_T* c, int ldc),
  auto symmetric = blas::triangle(a, lda, uplo);
  auto other = blas::matrix(b, ldb);
  if (side == CUBLAS_SIDE_LEFT)
    blas::multiply<CUDAOPS_T>(m, n, m, *alpha, symmetric, other, *beta, blas::matrix(c, ldc));
  else
    blas::multiply<CUDAOPS_T>(m, n, n, *alpha, other, symmetric, *beta, blas::matrix(c, ldc));
)
CUDAOPS_BLAS(CUDAOPS_NAME(syrk), n >= 0 && k >= 0 && blas::spans(lda, op == CUBLAS_OP_N ? n : k) &&
             blas::spans(ldc, n),
             (cublasFillMode_t uplo, cublasOperation_t op, int n, int k, const CUDAOPS_T* alpha, const CUDAOPS_T* a,
              int lda, const CUDAOPS_T* beta, CUDAOPS_T* c, int ldc),
  auto one = blas::matrix(a, lda, op);
  blas::multiply<CUDAOPS_T>(n, n, k, *alpha, one, one.transposed(), *beta, blas::triangle(c, ldc, uplo));
)
CUDAOPS_BLAS(CUDAOPS_NAME(trsm), n >= 0 && blas::spans(lda, side == CUBLAS_SIDE_LEFT ? m : n) && blas::spans(ldb, m),
             (cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op, cublasDiagType_t diag, int m, int n,
              const CUDAOPS_T* alpha, const CUDAOPS_T* a, int lda, CUDAOPS_T* b, int ldb),
  bool lower = (uplo == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N);
  bool unit = diag == CUBLAS_DIAG_UNIT;
  auto left = blas::matrix(a, lda, op);
  auto right = blas::matrix(b, ldb);
  if (side == CUBLAS_SIDE_LEFT)
    blas::solve<CUDAOPS_T>(lower, unit, m, n, *alpha, left, right);
  else  // x a = b is a' x' = b'
    blas::solve<CUDAOPS_T>(!lower, unit, n, m, *alpha, left.transposed(), right.transposed());
)
CUDAOPS_BLAS(CUDAOPS_NAME(geam), n >= 0 && blas::spans(lda, opa == CUBLAS_OP_N ? m : n) &&
             blas::spans(ldb, opb == CUBLAS_OP_N ? m : n) && blas::spans(ldc, m),
             (cublasOperation_t opa, cublasOperation_t opb, int m, int n, const CUDAOPS_T* alpha, const CUDAOPS_T* a,
              int lda, const CUDAOPS_T* beta, const CUDAOPS_T* b, int ldb, CUDAOPS_T* c, int ldc),
  auto one = blas::matrix(a, lda, opa);
  auto other = blas::matrix(b, ldb, opb);
  auto to = blas::matrix(c, ldc);
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      CUDAOPS_T first = *alpha == 0 ? 0 : *alpha * one(i, j);
      to(i, j) = *beta == 0 ? first : first + *beta * other(i, j);
    }
)
#undef CUDAOPS_X
#undef CUDAOPS_X_OUT
#undef CUDAOPS_Y_OUT
#undef CUDAOPS_INDEX_NAME
#endif
#undef CUDAOPS_T
#undef CUDAOPS_SUM
#undef CUDAOPS_NAME
