// an expression template whose type nobody would write out
#include <cmath>
#include <cstdio>
#include <cstdlib>

template <typename E> struct Expr {
  __host__ __device__ const E& self() const { return static_cast<const E&>(*this); }
};
struct View : Expr<View> {
  const float* p;
  explicit View(const float* q) : p(q) {}
  __host__ __device__ float at(int i) const { return p[i]; }
};
struct Const : Expr<Const> {
  float v;
  explicit Const(float x) : v(x) {}
  __host__ __device__ float at(int) const { return v; }
};
template <typename L, typename R> struct Add : Expr<Add<L, R>> {
  L l; R r;
  Add(const L& a, const R& b) : l(a), r(b) {}
  __host__ __device__ float at(int i) const { return l.at(i) + r.at(i); }
};
template <typename L, typename R> struct Mul : Expr<Mul<L, R>> {
  L l; R r;
  Mul(const L& a, const R& b) : l(a), r(b) {}
  __host__ __device__ float at(int i) const { return l.at(i) * r.at(i); }
};
template <typename L, typename R>
Add<L, R> operator+(const Expr<L>& a, const Expr<R>& b) { return Add<L, R>(a.self(), b.self()); }
template <typename L, typename R>
Mul<L, R> operator*(const Expr<L>& a, const Expr<R>& b) { return Mul<L, R>(a.self(), b.self()); }

template <typename E>
__global__ void evaluate(E e, float* out, size_t count) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    out[i] = e.at((int)i);
}

int main() {
  const size_t count = 4096;
  float *a, *b, *o;
  cudaMallocManaged(&a, count * sizeof(float));
  cudaMallocManaged(&b, count * sizeof(float));
  cudaMallocManaged(&o, count * sizeof(float));
  for (size_t i = 0; i < count; ++i) { a[i] = (float)(i % 13); b[i] = (float)(i % 5) - 2.0f; }
  evaluate<<<16, 64>>>(View(a) * View(b) + Const(3.0f) * View(a), o, count);
  cudaDeviceSynchronize();
  double s = 0;
  for (size_t i = 0; i < count; ++i) s += o[i];
  printf("%.2f\n", s);
  evaluate<<<16, 64>>>(View(o) + View(b), a, count);
  if (cudaDeviceSynchronize() != cudaSuccess) return EXIT_FAILURE;
  s = 0;
  for (size_t i = 0; i < count; ++i) s += a[i];
  printf("%.2f\n", s);
  cudaFree(a); cudaFree(b); cudaFree(o);
}
