// What a kernel's parameter is, by its C++ type. Also read by nvcc: CUDA's vector types are known here.
#ifndef CUDAOPS_ARGUMENT_TYPES_H
#define CUDAOPS_ARGUMENT_TYPES_H
#include <type_traits>

namespace cudaops {

// Scalar type of what a parameter points to or is, spelled as in cudaops.domain.workload.Element.
template <class T, class = void>
struct element { static constexpr const char* name = "opaque"; };
template <class T>
struct element<T, std::enable_if_t<std::is_enum<T>::value>> : element<std::underlying_type_t<T>> {};
#define CUDAOPS_ELEMENT(T, text) \
  template <> struct element<T, void> { static constexpr const char* name = text; };
#define CUDAOPS_ELEMENT_INTEGER(T, sign) \
  template <> struct element<T, void> { \
    static constexpr const char* name = sizeof(T) == 8 ? sign "64" : sizeof(T) == 4 ? sign "32" : \
                                        sizeof(T) == 2 ? sign "16" : sign "8"; };
#define CUDAOPS_ELEMENT_VECTOR(base, text)                                     \
  CUDAOPS_ELEMENT(base##1, text) CUDAOPS_ELEMENT(base##2, text)                \
  CUDAOPS_ELEMENT(base##3, text) CUDAOPS_ELEMENT(base##4, text)
CUDAOPS_ELEMENT(bool, "bool")
CUDAOPS_ELEMENT(float, "f32")
CUDAOPS_ELEMENT(double, "f64")
CUDAOPS_ELEMENT_INTEGER(char, "i")
CUDAOPS_ELEMENT_INTEGER(signed char, "i")
CUDAOPS_ELEMENT_INTEGER(short, "i")
CUDAOPS_ELEMENT_INTEGER(int, "i")
CUDAOPS_ELEMENT_INTEGER(long, "i")
CUDAOPS_ELEMENT_INTEGER(long long, "i")
CUDAOPS_ELEMENT_INTEGER(unsigned char, "u")
CUDAOPS_ELEMENT_INTEGER(unsigned short, "u")
CUDAOPS_ELEMENT_INTEGER(unsigned, "u")
CUDAOPS_ELEMENT_INTEGER(unsigned long, "u")
CUDAOPS_ELEMENT_INTEGER(unsigned long long, "u")
CUDAOPS_ELEMENT_VECTOR(char, "i8")
CUDAOPS_ELEMENT_VECTOR(uchar, "u8")
CUDAOPS_ELEMENT_VECTOR(short, "i16")
CUDAOPS_ELEMENT_VECTOR(ushort, "u16")
CUDAOPS_ELEMENT_VECTOR(int, "i32")
CUDAOPS_ELEMENT_VECTOR(uint, "u32")
CUDAOPS_ELEMENT_VECTOR(long, "i64")
CUDAOPS_ELEMENT_VECTOR(ulong, "u64")
CUDAOPS_ELEMENT_VECTOR(longlong, "i64")
CUDAOPS_ELEMENT_VECTOR(ulonglong, "u64")
CUDAOPS_ELEMENT_VECTOR(float, "f32")
CUDAOPS_ELEMENT_VECTOR(double, "f64")
#undef CUDAOPS_ELEMENT_VECTOR
#undef CUDAOPS_ELEMENT_INTEGER

// Whether pointers stand in what a parameter points to: none, pointers to numbers, or structures and whatever
// these lead to.
enum class Holds : char { Nothing, Numbers, Anything };

template <class T>
constexpr Holds holds() {
  using Pointee = std::remove_cv_t<std::remove_pointer_t<T>>;
  if (std::is_pointer<T>::value)
    return element<Pointee>::name[0] == 'o' && !std::is_void<Pointee>::value ? Holds::Anything : Holds::Numbers;
  return std::is_class<T>::value && element<T>::name[0] == 'o' ? Holds::Anything : Holds::Nothing;
}

enum class ArgumentKind : char { Pointer = 'p', Scalar = 's', Opaque = 'o' };

struct ArgumentType {
  ArgumentKind kind;
  const char* element;
  unsigned size;
  bool pointee_const;
  bool pointee_pointer;
  Holds holds;
  const char* (*written)();  // of a structure: "... [with T = ns::Name<int>]"; null: `element` is that
  const char* (*function)() = nullptr;  // the same of a pointer to one; null: of any other
};

template <class T>
const char* written() { return __PRETTY_FUNCTION__; }

// g++ keeps __restrict__ of a parameter whose type a template decides, and is_pointer says no to it.
template <class P>
struct Unrestricted { using type = P; };
template <class T>
struct Unrestricted<T* __restrict__> { using type = T*; };
template <class P>
using unrestricted = typename Unrestricted<std::remove_cv_t<P>>::type;

template <class P>
constexpr bool points_to_function = std::is_pointer<P>::value && std::is_function<std::remove_pointer_t<P>>::value;

template <class Written>
constexpr ArgumentType describe() {
  using P = unrestricted<Written>;
  using T = std::remove_cv_t<std::remove_pointer_t<P>>;
  if (std::is_pointer<P>::value)
    return {ArgumentKind::Pointer, element<T>::name, sizeof(P),
            std::is_const<std::remove_pointer_t<P>>::value, std::is_pointer<T>::value, holds<T>(), nullptr,
            points_to_function<P> ? &written<P> : nullptr};
  if (std::is_arithmetic<P>::value || std::is_enum<P>::value)
    return {ArgumentKind::Scalar, element<T>::name, sizeof(P), false, false, Holds::Nothing, nullptr};
  return {ArgumentKind::Opaque, "opaque", sizeof(P), false, false, Holds::Nothing, &written<T>};
}

// What a parameter is to a kernel: a reference is the address of what it is of.
template <class P>
using handed = std::conditional_t<std::is_reference<P>::value, std::remove_reference_t<P>*, P>;

// A class that C++ hands over by its address, as it has a destructor or a constructor that copies. A kernel gets its
// bytes: none of its author's functions run where a launch is kept.
template <class P>
constexpr bool is_handed_by_address =
    std::is_class<P>::value &&
    (!std::is_trivially_destructible<P>::value ||
     (std::is_copy_constructible<P>::value && !std::is_trivially_copy_constructible<P>::value) ||
     (std::is_move_constructible<P>::value && !std::is_trivially_move_constructible<P>::value) ||
     (!std::is_copy_constructible<P>::value && !std::is_move_constructible<P>::value));
template <class P>
struct BytesOf {
  alignas(P) unsigned char bytes[sizeof(P)];
  explicit BytesOf(const P& from) { __builtin_memcpy(bytes, (const void*)__builtin_addressof(from), sizeof bytes); }
  operator P&() { return *reinterpret_cast<P*>(bytes); }
};
// What is kept of an argument while its launch lasts.
template <class P>
using Kept = std::conditional_t<is_handed_by_address<P>, BytesOf<P>, P>;
// The same where `F` is called; the arguments of an instance that is deduced stay what it is deduced by.
template <class F, class P>
using KeptFor = std::conditional_t<std::is_pointer<F>::value, Kept<P>, P>;

}  // namespace cudaops
#endif
