// Entries of a unit: how the runner turns the values of a plan into a kernel's own parameters.
#pragma once
#include "macros_off.h"
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "launch.h"

namespace cudaops {

struct RawValue {
  enum Kind { Pointer, Integer, Floating, Bytes } kind;
  unsigned long long bits;    // Pointer: the address
  long long integer;
  double floating;
  const unsigned char* bytes; // Bytes
  size_t size;
};

const void* function_of(unsigned long long token);  // null where this executable has none such
[[noreturn]] void refuse_value(const char* kernel, int position, const char* why);

template <class Written>
Kept<unrestricted<Written>> unpack(const RawValue& value, const char* kernel, int position) {
  using P = unrestricted<Written>;
  if constexpr (std::is_reference<P>::value) {
    return static_cast<P>(*unpack<handed<P>>(value, kernel, position));
  } else if constexpr (points_to_function<P>) {
    unsigned long long token = 0;
    if (value.kind == RawValue::Bytes && value.size == sizeof token) std::memcpy(&token, value.bytes, sizeof token);
    const void* function = token ? function_of(token) : nullptr;
    if (!function && !(value.kind == RawValue::Pointer && !value.bits))
      refuse_value(kernel, position, "it points to a function that is not in this build");
    return (P)function;
  } else if constexpr (std::is_pointer<P>::value) {
    if (value.kind != RawValue::Pointer) refuse_value(kernel, position, "a pointer is needed");
    return (P)(uintptr_t)value.bits;
  } else if constexpr (std::is_arithmetic<P>::value || std::is_enum<P>::value) {
    if (value.kind == RawValue::Integer) return (P)value.integer;
    if constexpr (std::is_arithmetic<P>::value)
      if (value.kind == RawValue::Floating) return (P)value.floating;
    refuse_value(kernel, position, "a number is needed");
  } else {
    if (value.kind != RawValue::Bytes || value.size != sizeof(P))
      refuse_value(kernel, position, "the bytes of a structure of another size are given");
    alignas(P) unsigned char storage[sizeof(P)];
    std::memcpy(storage, value.bytes, sizeof(P));
    return Kept<P>(*reinterpret_cast<P*>(storage));
  }
}

struct Entry {
  int index;
  const char* kernel;
  int count;
  void (*run)(const Entry& entry, Call call, const RawValue* values);
  const void* function;
  Entry* next;
  Entry(int index, const char* kernel, int count, const void* function,
        void (*run)(const Entry&, Call, const RawValue*));
};

template <class... P>
struct Typed {
  template <size_t... I>
  static void expand(const Entry& entry, const Call& call, const RawValue* values,
                     std::index_sequence<I...>) {
    Bound<P...> bound{call, (void (*)(P...))entry.function};
    bound.call.function = entry.function;
    bound.start(unpack<P>(values[I], entry.kernel, (int)I)...);
  }
  static void run(const Entry& entry, Call call, const RawValue* values) {
    expand(entry, call, values, std::index_sequence_for<P...>());
  }
};

template <class... P>
Entry make_entry(int index, const char* kernel, void (*function)(P...)) {
  return Entry(index, kernel, sizeof...(P), (const void*)function, &Typed<P...>::run);
}

}  // namespace cudaops

#define CUDAOPS_ENTRY(index, text, ...) \
  static ::cudaops::Entry cudaops_entry_##index = ::cudaops::make_entry(index, text, __VA_ARGS__)
#include "macros_on.h"
