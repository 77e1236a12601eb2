// A kernel launch as a value: what the rerouted `kernel<<<grid, block, smem, stream>>>(args)` calls.
#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "vector_types.h"

typedef struct CUstream_st* cudaStream_t;

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

enum class ArgumentKind : char { Pointer = 'p', Scalar = 's', Opaque = 'o' };

struct ArgumentType {
  ArgumentKind kind;
  const char* element;
  unsigned size;
  bool pointee_const;
  bool pointee_pointer;
};

template <class P>
constexpr ArgumentType describe() {
  using T = std::remove_cv_t<std::remove_pointer_t<P>>;
  if (std::is_pointer<P>::value)
    return {ArgumentKind::Pointer, element<T>::name, sizeof(P),
            std::is_const<std::remove_pointer_t<P>>::value, std::is_pointer<T>::value};
  if (std::is_arithmetic<P>::value || std::is_enum<P>::value)
    return {ArgumentKind::Scalar, element<T>::name, sizeof(P), false, false};
  return {ArgumentKind::Opaque, "opaque", sizeof(P), false, false};
}

// One launch with its types erased. `values[i]` points at the i-th argument.
struct Call {
  int site;
  const char* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  void (*invoke)(void* closure);
  void* closure;
  const void* function;  // null where template arguments are deduced
  int count;
  const ArgumentType* types;
  void* const* values;
};

void submit(const Call& call);

template <class F, class... P>
struct Closure {
  F function;
  std::tuple<P...> arguments;

  static void invoke(void* self) {
    auto* closure = static_cast<Closure*>(self);
    std::apply(closure->function, closure->arguments);
  }

  template <size_t... I>
  void submit_with(Call call, std::index_sequence<I...>) {
    static constexpr ArgumentType types[] = {describe<P>()..., ArgumentType{}};
    void* values[] = {(void*)&std::get<I>(arguments)..., nullptr};
    call.invoke = &invoke;
    call.closure = this;
    call.count = sizeof...(P);
    call.types = types;
    call.values = values;
    submit(call);
  }
};

template <class... P>
struct Bound {
  Call call;
  void (*function)(P...);
  void operator()(P... arguments) const {
    Closure<void (*)(P...), P...> closure{function, std::tuple<P...>(std::move(arguments)...)};
    closure.submit_with(call, std::index_sequence_for<P...>());
  }
};

template <class F>
struct Deduced {
  Call call;
  F function;
  template <class... A>
  void operator()(A&&... arguments) const {
    Closure<F, std::decay_t<A>...> closure{function, {std::forward<A>(arguments)...}};
    closure.submit_with(call, std::index_sequence_for<A...>());
  }
};

struct Launch {
  Call call;
  template <class... P>
  Bound<P...> of(void (*function)(P...)) const {
    Bound<P...> bound{call, function};
    bound.call.function = (const void*)function;
    return bound;
  }
  template <class F>
  Deduced<F> deduced(F function) const { return Deduced<F>{call, function}; }
};

inline Launch launch(int site, const char* kernel, dim3 grid, dim3 block, size_t shared_bytes = 0,
                     cudaStream_t = nullptr) {
  Launch result{};
  result.call.site = site;
  result.call.kernel = kernel;
  result.call.grid = grid;
  result.call.block = block;
  result.call.shared_bytes = shared_bytes;
  return result;
}

// A `__constant__` or `__device__` variable that captures and fixed-point proofs must know.
struct GlobalVariable {
  const char* name;
  void* address;
  size_t size;
  GlobalVariable* next;
  GlobalVariable(const char* name, const void* address, size_t size);
};

}  // namespace cudaops

#define CUDAOPS_JOIN_(a, b) a##b
#define CUDAOPS_JOIN(a, b) CUDAOPS_JOIN_(a, b)
#define CUDAOPS_GLOBAL(text, expression)                           \
  static ::cudaops::GlobalVariable CUDAOPS_JOIN(cudaops_global_, __COUNTER__)( \
      text, (const void*)__builtin_addressof(expression), sizeof(expression))
