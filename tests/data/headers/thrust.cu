// What Thrust's algorithms give, one line each: the same with our headers and with CCCL's own.
#include <cstdio>

#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/complex.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/logical.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/random.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/replace.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/transform_scan.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

using Ints = thrust::device_vector<int>;

template <class It> void show(const char* name, It first, It last) {
  std::printf("%s", name);
  for (; first != last; ++first) std::printf(" %d", (int)*first);
  std::printf("\n");
}
void show(const char* name, const Ints& all) { show(name, all.begin(), all.end()); }

struct Square {
  int operator()(int a) const { return a * a; }
};
struct IsOdd {
  bool operator()(int a) const { return a % 2 != 0; }
};
struct ByDigit {
  bool operator()(int a, int b) const { return a % 10 < b % 10; }
};
struct Dot {
  int operator()(const thrust::tuple<int, int>& both) const { return thrust::get<0>(both) * thrust::get<1>(both); }
};

Ints drawn(int count, int range) {
  thrust::host_vector<int> values(count);
  unsigned state = 12345;
  for (int& value : values) value = (int)((state = state * 1103515245u + 12345u) >> 16) % range;
  return values;
}

void vectors() {
  thrust::host_vector<int> host(4, 7);
  host[2] = 1;
  Ints a = host, b(a), c(3), d(a.begin() + 1, a.end());
  a.push_back(9), a.resize(7, -1), b.erase(b.begin() + 1), b.insert(b.begin(), 5), c = host;
  show("pushed", a), show("erased", b), show("assigned", c), show("part", d);
  thrust::host_vector<int> back = a;
  Ints moved = std::move(a);
  a = back, c.swap(d), d.clear();
  std::printf("sizes %d %d %d %d %d\n", (int)moved.size(), (int)a.size(), (int)c.size(), (int)d.empty(), back[4]);
  int* raw = thrust::raw_pointer_cast(&moved[0]);
  std::printf("pointers %d %d\n", (int)(raw == thrust::raw_pointer_cast(moved.data())), moved == a);
  thrust::device_ptr<int> from = thrust::device_pointer_cast(raw);
  std::printf("sum %d %d\n", thrust::reduce(from, from + 3), thrust::reduce(thrust::device, raw, raw + 3, 100));
}

void sums() {
  Ints v = drawn(20, 100), w(20), keys(20), kept(20), sums(20);
  thrust::sequence(w.begin(), w.end(), 1, 3);
  std::printf("reduced %d %d %d\n", thrust::reduce(v.begin(), v.end()), thrust::reduce(v.begin(), v.end(), 5, thrust::maximum<int>()),
              thrust::transform_reduce(v.begin(), v.end(), Square(), 1, thrust::plus<int>()));
  std::printf("product %d\n", thrust::inner_product(v.begin(), v.end(), w.begin(), 0));
  thrust::inclusive_scan(v.begin(), v.end(), sums.begin()), show("inclusive", sums);
  thrust::exclusive_scan(thrust::device, v.begin(), v.end(), sums.begin(), 10), show("exclusive", sums);
  sums = v, thrust::exclusive_scan(sums.begin(), sums.end(), sums.begin()), show("in place", sums);
  thrust::inclusive_scan(v.begin(), v.end(), sums.begin(), thrust::minimum<int>()), show("least", sums);
  thrust::transform_inclusive_scan(v.begin(), v.end(), sums.begin(), Square(), thrust::plus<int>());
  show("of squares", sums);
  thrust::transform(w.begin(), w.end(), thrust::make_constant_iterator(20), keys.begin(), thrust::divides<int>());
  thrust::inclusive_scan_by_key(keys.begin(), keys.end(), v.begin(), sums.begin()), show("by key", sums);
  thrust::exclusive_scan_by_key(keys.begin(), keys.end(), v.begin(), sums.begin(), 3), show("before", sums);
  auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), v.begin(), kept.begin(), sums.begin());
  show("keys", kept.begin(), ends.first), show("sums", sums.begin(), ends.second);
  ends = thrust::reduce_by_key(keys.begin(), keys.end(), thrust::make_constant_iterator(1), kept.begin(), sums.begin(),
                               thrust::equal_to<int>(), thrust::plus<int>());
  show("counts", sums.begin(), ends.second);
  thrust::adjacent_difference(v.begin(), v.end(), sums.begin()), show("differences", sums);
}

void orders() {
  Ints v = drawn(24, 50), w(24), u = v;
  thrust::sequence(w.begin(), w.end());
  thrust::stable_sort_by_key(u.begin(), u.end(), w.begin(), ByDigit()), show("by digit", u), show("came from", w);
  thrust::sort(v.begin(), v.end(), thrust::greater<int>()), show("falling", v);
  thrust::sort(thrust::device, thrust::raw_pointer_cast(v.data()), thrust::raw_pointer_cast(v.data()) + 12);
  show("half", v);
  thrust::sort(v.begin(), v.end()), show("sorted", v);
  Ints at(3), wanted = drawn(3, 50);
  std::printf("first of %d\n", (int)(thrust::lower_bound(v.begin(), v.end(), 20) - v.begin()));
  thrust::lower_bound(v.begin(), v.end(), wanted.begin(), wanted.end(), at.begin()), show("lower", at);
  thrust::upper_bound(thrust::device, v.begin(), v.end(), wanted.begin(), wanted.end(), at.begin()), show("upper", at);
  std::printf("found %d\n", (int)thrust::binary_search(v.begin(), v.end(), 17));
  Ints merged(48), common(24);
  thrust::sort(u.begin(), u.end());
  thrust::merge(u.begin(), u.end(), v.begin(), v.end(), merged.begin()), show("merged", merged);
  merged.erase(thrust::unique(merged.begin(), merged.end()), merged.end()), show("unique", merged);
  auto end = thrust::set_difference(u.begin(), u.end(), u.begin() + 3, u.begin() + 9, common.begin());
  show("difference", common.begin(), end);
  auto zipped = thrust::make_zip_iterator(thrust::make_tuple(v.begin(), w.begin()));
  thrust::sort(zipped, zipped + 24, thrust::greater<thrust::tuple<int, int>>()), show("tuples", w);
  auto pairs = thrust::unique_by_key(v.begin(), v.end(), w.begin());
  show("of keys", w.begin(), pairs.second);
}

void choices() {
  Ints v = drawn(20, 30), w(20), mask(20);
  thrust::transform(v.begin(), v.end(), mask.begin(), IsOdd());
  std::printf("odd %d %d\n", (int)thrust::count_if(v.begin(), v.end(), IsOdd()), (int)thrust::count(thrust::host, v.begin(), v.end(), 7));
  show("if", w.begin(), thrust::copy_if(v.begin(), v.end(), w.begin(), IsOdd()));
  show("where", w.begin(), thrust::copy_if(thrust::device, v.begin(), v.end(), mask.begin(), w.begin(), IsOdd()));
  w = v, show("gone", w.begin(), thrust::remove_if(w.begin(), w.end(), IsOdd()));
  w = v, show("value", w.begin(), thrust::remove(w.begin(), w.end(), (int)v[3]));
  w = v, thrust::stable_partition(w.begin(), w.end(), IsOdd()), show("parted", w);
  w = v, thrust::replace_if(w.begin(), w.end(), IsOdd(), -1), show("replaced", w);
  auto largest = thrust::max_element(v.begin(), v.end());
  auto both = thrust::minmax_element(v.begin(), v.end());
  std::printf("extrema %d %d %d\n", (int)(largest - v.begin()), (int)*both.first, (int)*both.second);
  std::printf("all %d any %d\n", (int)thrust::all_of(v.begin(), v.end(), IsOdd()), (int)thrust::any_of(v.begin(), v.end(), IsOdd()));
  Ints map(5);
  thrust::tabulate(map.begin(), map.end(), Square());
  thrust::gather(map.begin(), map.end(), v.begin(), w.begin()), show("gathered", w);
  thrust::fill(w.begin(), w.end(), 0), thrust::scatter(v.begin(), v.begin() + 5, map.begin(), w.begin()), show("scattered", w);
}

void iterators() {
  Ints v = drawn(6, 10), w(6, 2);
  thrust::counting_iterator<int> from(3);
  std::printf("counted %d\n", thrust::reduce(from, from + 5));
  auto squares = thrust::make_transform_iterator(v.begin(), Square());
  std::printf("squares %d\n", thrust::reduce(squares, squares + 6));
  auto zipped = thrust::make_zip_iterator(thrust::make_tuple(v.begin(), w.begin()));
  std::printf("dot %d\n", thrust::transform_reduce(zipped, zipped + 6, Dot(), 0, thrust::plus<int>()));
  Ints map(2);
  map[0] = 5, map[1] = 1;
  auto chosen = thrust::make_permutation_iterator(v.begin(), map.begin());
  show("chosen", chosen, chosen + 2);
  thrust::copy_n(v.begin(), 3, w.begin()), thrust::for_each(w.begin(), w.end(), [](int& a) { a += 1; }), show("more", w);
  int a;
  double b;
  thrust::tie(a, b) = thrust::make_pair(3, 4.5);
  std::printf("pair %d %g\n", a, b);
  thrust::minstd_rand engine(7);
  thrust::uniform_real_distribution<double> real(2, 3);
  double first = real(engine);
  std::printf("drawn %d %d\n", first >= 2 && first < 3, (int)(engine() % 1000));
}

void numbers() {
  using C = thrust::complex<double>;
  C a(1.5, -2), b(0.25, 3), all[] = {a + b, a - b, a * b, a / b, 2.0 * a, a + 1.0, thrust::conj(a), thrust::exp(a), thrust::sqrt(b)};
  for (C z : all) std::printf("complex %.12g %.12g\n", z.real(), z.imag());
  std::printf("magnitudes %.12g %.12g %.12g\n", thrust::abs(a), thrust::norm(a), thrust::arg(b));
}

int main() {
  vectors(), sums(), orders(), choices(), iterators(), numbers();
}
