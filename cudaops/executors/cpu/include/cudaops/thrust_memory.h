// Thrust's memory: a device_vector lies where cudaMalloc puts it, so that kernels that are given its
// data are recorded and checked like any other. A device_ptr is its iterator.
#pragma once
#include "macros_off.h"
#include <initializer_list>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cudaops/cuda.h"

namespace thrust {

using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;

// Where an algorithm runs: said and not heeded, everything runs in order.
struct execution_policy_base {};
struct host_policy : execution_policy_base {};
struct device_policy : execution_policy_base {
  device_policy on(cudaStream_t) const { return {}; }
  template <class Allocator> device_policy operator()(Allocator&&) const { return {}; }
};
static constexpr host_policy host{}, seq{};
static constexpr device_policy device{};
namespace cuda {
static constexpr device_policy par{}, par_nosync{};
}
namespace cuda_cub = cuda;
namespace system { namespace cuda = thrust::cuda; }
template <class T> constexpr bool is_policy = std::is_base_of<execution_policy_base, T>::value;

template <class T> class device_ptr {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::remove_cv_t<T>;
  using element_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = T*;
  using reference = std::add_lvalue_reference_t<T>;

  device_ptr() = default;
  device_ptr(std::nullptr_t) {}
  explicit device_ptr(T* raw) : raw_(raw) {}
  template <class U, class = std::enable_if_t<std::is_convertible<U*, T*>::value>>
  device_ptr(const device_ptr<U>& other) : raw_(other.get()) {}

  T* get() const { return raw_; }
  reference operator*() const { return *raw_; }
  T* operator->() const { return raw_; }
  reference operator[](std::ptrdiff_t at) const { return raw_[at]; }
  device_ptr& operator++() { return ++raw_, *this; }
  device_ptr& operator--() { return --raw_, *this; }
  device_ptr operator++(int) { return device_ptr(raw_++); }
  device_ptr operator--(int) { return device_ptr(raw_--); }
  device_ptr& operator+=(std::ptrdiff_t by) { return raw_ += by, *this; }
  device_ptr& operator-=(std::ptrdiff_t by) { return raw_ -= by, *this; }
  friend device_ptr operator+(device_ptr a, std::ptrdiff_t by) { return device_ptr(a.raw_ + by); }
  friend device_ptr operator+(std::ptrdiff_t by, device_ptr a) { return device_ptr(a.raw_ + by); }
  friend device_ptr operator-(device_ptr a, std::ptrdiff_t by) { return device_ptr(a.raw_ - by); }
  friend std::ptrdiff_t operator-(device_ptr a, device_ptr b) { return a.raw_ - b.raw_; }
  friend bool operator==(device_ptr a, device_ptr b) { return a.raw_ == b.raw_; }
  friend bool operator!=(device_ptr a, device_ptr b) { return a.raw_ != b.raw_; }
  friend bool operator<(device_ptr a, device_ptr b) { return a.raw_ < b.raw_; }
  friend bool operator>(device_ptr a, device_ptr b) { return a.raw_ > b.raw_; }
  friend bool operator<=(device_ptr a, device_ptr b) { return a.raw_ <= b.raw_; }
  friend bool operator>=(device_ptr a, device_ptr b) { return a.raw_ >= b.raw_; }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T* raw_ = nullptr;
};
template <class T> using device_reference = T&;

template <class T> device_ptr<T> device_pointer_cast(T* raw) { return device_ptr<T>(raw); }
template <class T> device_ptr<T> device_pointer_cast(device_ptr<T> one) { return one; }
template <class T> T* raw_pointer_cast(T* raw) { return raw; }
template <class T> T* raw_pointer_cast(device_ptr<T> one) { return one.get(); }
template <class T> T& raw_reference_cast(T& one) { return one; }

template <class T> device_ptr<T> device_malloc(size_t count) {
  T* raw = nullptr;
  if (count && cudaMalloc(&raw, count * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
  return device_ptr<T>(raw);
}
template <class T> void device_free(device_ptr<T> one) { cudaFree((void*)one.get()); }

template <class T> class device_allocator {
 public:
  using value_type = T;
};

template <class T, class Allocator = device_allocator<T>> class device_vector {
  template <class It>
  using If_iterator = std::enable_if_t<!std::is_integral<It>::value, typename std::iterator_traits<It>::value_type>;

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using pointer = device_ptr<T>;
  using const_pointer = device_ptr<const T>;
  using iterator = device_ptr<T>;
  using const_iterator = device_ptr<const T>;
  using reverse_iterator = std::reverse_iterator<iterator>;

  device_vector() = default;
  explicit device_vector(size_t count) { resize(count); }
  device_vector(size_t count, const T& value) { resize(count, value); }
  template <class It, class = If_iterator<It>> device_vector(It first, It last) { assign(first, last); }
  device_vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  device_vector(const device_vector& other) { assign(other.begin(), other.end()); }
  device_vector(device_vector&& other) noexcept { swap(other); }
  template <class U, class A> device_vector(const std::vector<U, A>& other) { assign(other.begin(), other.end()); }
  template <class U, class A> device_vector(const device_vector<U, A>& other) { assign(other.begin(), other.end()); }
  ~device_vector() { device_free(data_); }
  device_vector& operator=(const device_vector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  device_vector& operator=(device_vector&& other) noexcept { return swap(other), *this; }
  template <class U, class A> device_vector& operator=(const std::vector<U, A>& other) {
    return assign(other.begin(), other.end()), *this;
  }
  template <class U, class A> device_vector& operator=(const device_vector<U, A>& other) {
    return assign(other.begin(), other.end()), *this;
  }

  template <class It, class = If_iterator<It>> void assign(It first, It last) {
    std::vector<T> values(first, last);  // they may be this vector's own
    make_room(values.size(), 0);
    size_ = values.size();
    for (size_t i = 0; i < size_; ++i) data_[i] = values[i];
  }
  void assign(size_t count, const T& value) { size_ = 0, resize(count, T(value)); }
  void resize(size_t count, T value = T()) {
    make_room(count, size_);
    for (size_t i = size_; i < count; ++i) data_[i] = value;
    size_ = count;
  }
  void reserve(size_t count) { make_room(count, size_); }
  void shrink_to_fit() {}
  void clear() { size_ = 0; }
  void push_back(T value) {
    if (size_ == capacity_) make_room(2 * size_ + 1, size_);
    data_[size_++] = value;
  }
  void pop_back() { --size_; }
  iterator erase(iterator first, iterator last) {
    for (iterator from = last, to = first; from != end(); ++from, ++to) *to = *from;
    size_ -= (size_t)(last - first);
    return first;
  }
  iterator erase(iterator at) { return erase(at, at + 1); }
  iterator insert(iterator at, const T& value) {
    std::vector<T> values(begin(), end());
    size_t where = (size_t)(at - begin());
    values.insert(values.begin() + (std::ptrdiff_t)where, value);
    assign(values.begin(), values.end());
    return begin() + (std::ptrdiff_t)where;
  }
  template <class It, class = If_iterator<It>> void insert(iterator at, It first, It last) {
    std::vector<T> values(begin(), end());
    values.insert(values.begin() + (at - begin()), first, last);
    assign(values.begin(), values.end());
  }
  void swap(device_vector& other) noexcept {
    std::swap(data_, other.data_), std::swap(size_, other.size_), std::swap(capacity_, other.capacity_);
  }

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  pointer data() { return data_; }
  const_pointer data() const { return data_; }
  iterator begin() { return data_; }
  iterator end() { return data_ + (std::ptrdiff_t)size_; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return const_iterator(data_) + (std::ptrdiff_t)size_; }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  reverse_iterator rbegin() { return reverse_iterator(end()); }
  reverse_iterator rend() { return reverse_iterator(begin()); }
  reference operator[](size_t at) { return data_.get()[at]; }
  const_reference operator[](size_t at) const { return data_.get()[at]; }
  reference front() { return data_.get()[0]; }
  reference back() { return data_.get()[size_ - 1]; }
  const_reference front() const { return data_.get()[0]; }
  const_reference back() const { return data_.get()[size_ - 1]; }

  friend bool operator==(const device_vector& a, const device_vector& b) {
    return std::vector<T>(a.begin(), a.end()) == std::vector<T>(b.begin(), b.end());
  }
  friend bool operator!=(const device_vector& a, const device_vector& b) { return !(a == b); }

 private:
  void make_room(size_t count, size_t kept) {
    if (count <= capacity_) return;
    device_ptr<T> larger = device_malloc<T>(count);
    for (size_t i = 0; i < kept; ++i) larger[(std::ptrdiff_t)i] = data_[(std::ptrdiff_t)i];
    device_free(data_);
    data_ = larger, capacity_ = count;
  }
  device_ptr<T> data_;
  size_t size_ = 0, capacity_ = 0;
};

template <class T, class Allocator = std::allocator<T>> class host_vector : public std::vector<T, Allocator> {
  using Base = std::vector<T, Allocator>;

 public:
  using Base::Base;
  host_vector() = default;
  host_vector(const Base& other) : Base(other) {}
  template <class U, class A> host_vector(const device_vector<U, A>& other) : Base(other.begin(), other.end()) {}
  template <class U, class A> host_vector& operator=(const device_vector<U, A>& other) {
    return Base::assign(other.begin(), other.end()), *this;
  }
};
template <class T> using universal_vector = device_vector<T>;
template <class T> using universal_host_pinned_vector = device_vector<T>;

}  // namespace thrust
#include "macros_on.h"
