// Thrust's functions that are values, and its iterators over what lies nowhere.
#pragma once
#include "macros_off.h"
#include <functional>

#include "cudaops/thrust_memory.h"

namespace thrust {

using std::bit_and;
using std::bit_or;
using std::bit_xor;
using std::divides;
using std::equal_to;
using std::greater;
using std::greater_equal;
using std::less;
using std::less_equal;
using std::logical_and;
using std::logical_not;
using std::logical_or;
using std::minus;
using std::modulus;
using std::multiplies;
using std::negate;
using std::not_equal_to;
using std::plus;

template <class T = void> struct maximum {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <class T = void> struct minimum {
  T operator()(const T& a, const T& b) const { return a < b ? a : b; }
};
template <> struct maximum<void> {
  template <class A, class B> auto operator()(const A& a, const B& b) const { return a < b ? b : a; }
};
template <> struct minimum<void> {
  template <class A, class B> auto operator()(const A& a, const B& b) const { return a < b ? a : b; }
};
template <class T = void> struct identity {
  const T& operator()(const T& a) const { return a; }
};
template <> struct identity<void> {
  template <class T> T operator()(const T& a) const { return a; }
};
template <class T> struct square {
  T operator()(const T& a) const { return a * a; }
};
template <class A, class B> struct project1st {
  A operator()(const A& a, const B&) const { return a; }
};
template <class A, class B> struct project2nd {
  B operator()(const A&, const B& b) const { return b; }
};
template <class A, class R> struct unary_function {
  using argument_type = A;
  using result_type = R;
};
template <class A, class B, class R> struct binary_function {
  using first_argument_type = A;
  using second_argument_type = B;
  using result_type = R;
};
template <class F> auto not_fn(F f) { return std::not_fn(f); }
// Of a function of several arguments one of a tuple.
template <class F> struct zip_function {
  F function;
  template <class Tuple> decltype(auto) operator()(Tuple&& all) const { return std::apply(function, all); }
};
template <class F> zip_function<F> make_zip_function(F f) { return {f}; }

// What all iterators below have in common: `Self` gives `at`, `move` and `to`.
template <class Self, class Value, class Reference = Value> struct iterator_facade {
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = Reference;

  Reference operator*() const { return self().at(0); }
  Reference operator[](std::ptrdiff_t by) const { return self().at(by); }
  Self& operator++() { return *this += 1; }
  Self& operator--() { return *this += -1; }
  Self operator++(int) { return before(1); }
  Self operator--(int) { return before(-1); }
  Self& operator+=(std::ptrdiff_t by) { return self().move(by), self(); }
  Self& operator-=(std::ptrdiff_t by) { return *this += -by; }
  friend Self operator+(Self a, std::ptrdiff_t by) { return a += by; }
  friend Self operator+(std::ptrdiff_t by, Self a) { return a += by; }
  friend Self operator-(Self a, std::ptrdiff_t by) { return a -= by; }
  friend std::ptrdiff_t operator-(const Self& a, const Self& b) { return b.to(a); }
  friend bool operator==(const Self& a, const Self& b) { return b.to(a) == 0; }
  friend bool operator!=(const Self& a, const Self& b) { return b.to(a) != 0; }
  friend bool operator<(const Self& a, const Self& b) { return a.to(b) > 0; }
  friend bool operator>(const Self& a, const Self& b) { return a.to(b) < 0; }
  friend bool operator<=(const Self& a, const Self& b) { return a.to(b) >= 0; }
  friend bool operator>=(const Self& a, const Self& b) { return a.to(b) <= 0; }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }
  Self before(std::ptrdiff_t by) {
    Self old = self();
    *this += by;
    return old;
  }
};

template <class T> struct counting_iterator : iterator_facade<counting_iterator<T>, T> {
  T first{};
  counting_iterator() = default;
  explicit counting_iterator(T value) : first(value) {}
  T at(std::ptrdiff_t by) const { return (T)(first + by); }
  void move(std::ptrdiff_t by) { first = (T)(first + by); }
  std::ptrdiff_t to(const counting_iterator& b) const { return (std::ptrdiff_t)b.first - (std::ptrdiff_t)first; }
};
template <class T> counting_iterator<T> make_counting_iterator(T first) { return counting_iterator<T>(first); }

template <class T> struct constant_iterator : iterator_facade<constant_iterator<T>, T> {
  T value{};
  std::ptrdiff_t moved = 0;
  constant_iterator() = default;
  explicit constant_iterator(T one, std::ptrdiff_t at = 0) : value(one), moved(at) {}
  T at(std::ptrdiff_t) const { return value; }
  void move(std::ptrdiff_t by) { moved += by; }
  std::ptrdiff_t to(const constant_iterator& b) const { return b.moved - moved; }
};
template <class T> constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

struct anything {
  template <class T> const anything& operator=(const T&) const { return *this; }
};
struct discard_iterator : iterator_facade<discard_iterator, anything> {
  std::ptrdiff_t moved = 0;
  anything at(std::ptrdiff_t) const { return {}; }
  void move(std::ptrdiff_t by) { moved += by; }
  std::ptrdiff_t to(const discard_iterator& b) const { return b.moved - moved; }
};
inline discard_iterator make_discard_iterator() { return {}; }

template <class It> using value_of = typename std::iterator_traits<It>::value_type;
template <class It> using reference_of = typename std::iterator_traits<It>::reference;
template <class F, class It> using image_of = std::decay_t<std::invoke_result_t<F, reference_of<It>>>;

template <class F, class It, class R = image_of<F, It>>
struct transform_iterator : iterator_facade<transform_iterator<F, It, R>, R> {
  It base{};
  F function;
  transform_iterator(It from, F f) : base(from), function(f) {}
  R at(std::ptrdiff_t by) const { return function(base[by]); }
  void move(std::ptrdiff_t by) { base += by; }
  std::ptrdiff_t to(const transform_iterator& b) const { return b.base - base; }
};
template <class F, class It> transform_iterator<F, It> make_transform_iterator(It from, F f) { return {from, f}; }

template <class It, class Map>
struct permutation_iterator : iterator_facade<permutation_iterator<It, Map>, value_of<It>, reference_of<It>> {
  It base{};
  Map map{};
  permutation_iterator() = default;
  permutation_iterator(It from, Map by) : base(from), map(by) {}
  reference_of<It> at(std::ptrdiff_t by) const { return base[(std::ptrdiff_t)map[by]]; }
  void move(std::ptrdiff_t by) { map += by; }
  std::ptrdiff_t to(const permutation_iterator& b) const { return b.map - map; }
};
template <class It, class Map> permutation_iterator<It, Map> make_permutation_iterator(It from, Map map) {
  return {from, map};
}

template <class It> using reverse_iterator = std::reverse_iterator<It>;
template <class It> reverse_iterator<It> make_reverse_iterator(It from) { return reverse_iterator<It>(from); }

template <class Tuple> struct zip_iterator;
template <class... Its>
struct zip_iterator<std::tuple<Its...>>
    : iterator_facade<zip_iterator<std::tuple<Its...>>, std::tuple<value_of<Its>...>, std::tuple<reference_of<Its>...>> {
  std::tuple<Its...> all{};
  zip_iterator() = default;
  zip_iterator(const std::tuple<Its...>& iterators) : all(iterators) {}
  const std::tuple<Its...>& get_iterator_tuple() const { return all; }
  std::tuple<reference_of<Its>...> at(std::ptrdiff_t by) const {
    return std::apply([by](auto&... one) { return std::tuple<reference_of<Its>...>(one[by]...); }, all);
  }
  void move(std::ptrdiff_t by) {
    std::apply([by](auto&... one) { (void)(..., (one += by)); }, all);
  }
  std::ptrdiff_t to(const zip_iterator& b) const { return std::get<0>(b.all) - std::get<0>(all); }
};
template <class... Its> zip_iterator<std::tuple<Its...>> make_zip_iterator(const std::tuple<Its...>& all) { return {all}; }
template <class... Its> zip_iterator<std::tuple<Its...>> make_zip_iterator(Its... all) {
  return {std::tuple<Its...>(all...)};
}

using std::advance;
using std::distance;
template <class It> using iterator_value = std::iterator_traits<It>;
template <class It> using iterator_value_t = value_of<It>;

}  // namespace thrust
#include "macros_on.h"
