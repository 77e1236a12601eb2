// thrust::complex: quotients and magnitudes scaled as in CUDA's cuComplex.h.
#pragma once
#include "macros_off.h"
#include <complex>

#include "cudaops/cuda.h"

namespace thrust {

template <class T> struct alignas(2 * sizeof(T)) complex {
  using value_type = T;

  complex() = default;
  complex(const T& re) : re_(re) {}
  complex(const T& re, const T& im) : re_(re), im_(im) {}
  template <class U> complex(const complex<U>& other) : re_((T)other.real()), im_((T)other.imag()) {}
  template <class U> complex(const std::complex<U>& other) : re_((T)other.real()), im_((T)other.imag()) {}
  operator std::complex<T>() const { return {re_, im_}; }

  T real() const { return re_; }
  T imag() const { return im_; }
  void real(T re) { re_ = re; }
  void imag(T im) { im_ = im; }
  complex& operator+=(const complex& b) { return *this = *this + b; }
  complex& operator-=(const complex& b) { return *this = *this - b; }
  complex& operator*=(const complex& b) { return *this = *this * b; }
  complex& operator/=(const complex& b) { return *this = *this / b; }

  friend complex operator+(const complex& a) { return a; }
  friend complex operator-(const complex& a) { return {-a.re_, -a.im_}; }
  friend complex operator+(const complex& a, const complex& b) { return {a.re_ + b.re_, a.im_ + b.im_}; }
  friend complex operator-(const complex& a, const complex& b) { return {a.re_ - b.re_, a.im_ - b.im_}; }
  friend complex operator*(const complex& a, const complex& b) {
    return {a.re_ * b.re_ - a.im_ * b.im_, a.re_ * b.im_ + a.im_ * b.re_};
  }
  friend complex operator/(const complex& a, const complex& b) {
    T scale = 1 / (std::abs(b.re_) + std::abs(b.im_));
    T ar = a.re_ * scale, ai = a.im_ * scale, br = b.re_ * scale, bi = b.im_ * scale;
    T inverse = 1 / (br * br + bi * bi);
    return {(ar * br + ai * bi) * inverse, (ai * br - ar * bi) * inverse};
  }
  friend bool operator==(const complex& a, const complex& b) { return a.re_ == b.re_ && a.im_ == b.im_; }
  friend bool operator!=(const complex& a, const complex& b) { return !(a == b); }

 private:
  T re_ = 0, im_ = 0;
};

template <class T> T abs(const complex<T>& z) { return std::hypot(z.real(), z.imag()); }
template <class T> T arg(const complex<T>& z) { return std::atan2(z.imag(), z.real()); }
template <class T> T norm(const complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); }
template <class T> complex<T> conj(const complex<T>& z) { return {z.real(), -z.imag()}; }
template <class T> complex<T> polar(const T& size, const T& angle = 0) {
  return {size * std::cos(angle), size * std::sin(angle)};
}
#define CUDAOPS_COMPLEX(name) \
  template <class T> complex<T> name(const complex<T>& z) { return std::name(std::complex<T>(z)); }
CUDAOPS_COMPLEX(cos)
CUDAOPS_COMPLEX(cosh)
CUDAOPS_COMPLEX(exp)
CUDAOPS_COMPLEX(log)
CUDAOPS_COMPLEX(sin)
CUDAOPS_COMPLEX(sinh)
CUDAOPS_COMPLEX(sqrt)
CUDAOPS_COMPLEX(tan)
CUDAOPS_COMPLEX(tanh)
#undef CUDAOPS_COMPLEX
template <class T> complex<T> pow(const complex<T>& z, const complex<T>& to) {
  return std::pow(std::complex<T>(z), std::complex<T>(to));
}
template <class T> complex<T> pow(const complex<T>& z, const T& to) { return std::pow(std::complex<T>(z), to); }

}  // namespace thrust
#include "macros_on.h"
