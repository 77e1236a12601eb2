// Plan expressions at run time: signed 64-bit integers that notice overflow and division by zero,
// doubles, and pointers that move by elements. docs/launch-plans.md says what they mean.
#pragma once

#include <stddef.h>
#include <string.h>

namespace cudaops {

// An expression that has no value: the plan does not hold then. One plan a thread at a time.
static thread_local bool undefined_value __attribute__((tls_model("initial-exec"))) = false;

inline long long undefined() {
    undefined_value = true;
    return 1;
}

template <class T>
constexpr bool is_floating = false;
template <>
constexpr bool is_floating<float> = true;
template <>
constexpr bool is_floating<double> = true;

struct Whole {
    long long value;
    Whole(long long number) : value(number) {}
    Whole(int number) : value(number) {}
    Whole(bool truth) : value(truth) {}
    Whole(double number) : value(0) {
        const bool fits = number > -9.2e18 && number < 9.2e18;
        if (fits) value = static_cast<long long>(number);
        if (!fits || static_cast<double>(value) != number) undefined();
    }
    explicit operator bool() const { return value != 0; }
    explicit operator double() const { return static_cast<double>(value); }
    Whole operator-() const {
        long long result;
        return __builtin_sub_overflow(0LL, value, &result) ? Whole(undefined()) : Whole(result);
    }
};

inline Whole add(Whole a, Whole b) {
    long long result;
    return __builtin_add_overflow(a.value, b.value, &result) ? Whole(undefined()) : Whole(result);
}
inline Whole subtract(Whole a, Whole b) {
    long long result;
    return __builtin_sub_overflow(a.value, b.value, &result) ? Whole(undefined()) : Whole(result);
}
inline Whole multiply(Whole a, Whole b) {
    long long result;
    return __builtin_mul_overflow(a.value, b.value, &result) ? Whole(undefined()) : Whole(result);
}
inline bool divides(Whole a, Whole b) {
    return b.value != 0 && !(b.value == -1 && a.value == -__LONG_LONG_MAX__ - 1);
}
inline Whole divide(Whole a, Whole b) {
    return divides(a, b) ? Whole(a.value / b.value) : Whole(undefined());
}
inline Whole remainder(Whole a, Whole b) {
    return divides(a, b) ? Whole(a.value % b.value) : Whole(undefined());
}
inline double add(double a, double b) { return a + b; }
inline double subtract(double a, double b) { return a - b; }
inline double multiply(double a, double b) { return a * b; }
inline double divide(double a, double b) { return b == 0 ? double(undefined()) : a / b; }
inline double remainder(double, double) { return double(undefined()); }

struct Pointer {
    unsigned long long address;
    long long step;  // bytes of an element; 0: not known, so that it cannot be moved
    Pointer(unsigned long long place, long long bytes) : address(place), step(bytes) {}
    Pointer(decltype(nullptr)) : address(0), step(0) {}
    explicit operator bool() const { return address != 0; }
    Pointer moved(Whole steps) const {
        if (address == 0 || step == 0) undefined();
        const Whole bytes = multiply(steps, Whole(step));
        return {address + static_cast<unsigned long long>(bytes.value), step};
    }
};

// The number that two operands meet in: a double where either is one.
template <class A, class B, bool Floating = is_floating<A> || is_floating<B>>
struct Meeting {
    using type = Whole;
};
template <class A, class B>
struct Meeting<A, B, true> {
    using type = double;
};
template <class A, class B>
using Met = typename Meeting<A, B>::type;

template <class T>
constexpr bool is_whole = false;
template <>
constexpr bool is_whole<Whole> = true;
template <bool>
struct If {};
template <>
struct If<true> {
    using type = int;
};
template <class A, class B>
using EitherWhole = typename If<is_whole<A> || is_whole<B>>::type;

// Operators between a Whole and a number; those between built-in numbers are the language's own.
#define CUDAOPS_ARITHMETIC(symbol, function)                                   \
    template <class A, class B, EitherWhole<A, B> = 0>                         \
    Met<A, B> operator symbol(A a, B b) {                                      \
        return function(static_cast<Met<A, B>>(a), static_cast<Met<A, B>>(b)); \
    }
CUDAOPS_ARITHMETIC(+, add)
CUDAOPS_ARITHMETIC(-, subtract)
CUDAOPS_ARITHMETIC(*, multiply)
CUDAOPS_ARITHMETIC(/, divide)
CUDAOPS_ARITHMETIC(%, remainder)
#undef CUDAOPS_ARITHMETIC

inline long long plain(Whole number) { return number.value; }
inline double plain(double number) { return number; }
#define CUDAOPS_COMPARISON(symbol)                                                         \
    template <class A, class B, EitherWhole<A, B> = 0>                                     \
    bool operator symbol(A a, B b) {                                                       \
        return plain(static_cast<Met<A, B>>(a)) symbol plain(static_cast<Met<A, B>>(b));   \
    }
CUDAOPS_COMPARISON(==)
CUDAOPS_COMPARISON(!=)
CUDAOPS_COMPARISON(<)
CUDAOPS_COMPARISON(<=)
CUDAOPS_COMPARISON(>)
CUDAOPS_COMPARISON(>=)
#undef CUDAOPS_COMPARISON

inline Pointer operator+(Pointer pointer, Whole steps) { return pointer.moved(steps); }
inline Pointer operator+(Whole steps, Pointer pointer) { return pointer.moved(steps); }
inline Pointer operator-(Pointer pointer, Whole steps) { return pointer.moved(-steps); }
inline bool operator==(Pointer a, Pointer b) { return a.address == b.address; }
inline bool operator!=(Pointer a, Pointer b) { return a.address != b.address; }

// The functions that cudaops/program/cpp.py spells.
template <class A, class B>
Met<A, B> cudaops_divide(A a, B b) {
    return divide(static_cast<Met<A, B>>(a), static_cast<Met<A, B>>(b));
}
template <class A, class B>
Met<A, B> cudaops_remainder(A a, B b) {
    return remainder(static_cast<Met<A, B>>(a), static_cast<Met<A, B>>(b));
}
template <class A, class B>
Met<A, B> cudaops_min(A a, B b) {
    const auto x = static_cast<Met<A, B>>(a), y = static_cast<Met<A, B>>(b);
    return plain(y) < plain(x) ? y : x;
}
template <class A, class B>
Met<A, B> cudaops_max(A a, B b) {
    const auto x = static_cast<Met<A, B>>(a), y = static_cast<Met<A, B>>(b);
    return plain(x) < plain(y) ? y : x;
}
inline Whole cudaops_ceil_div(Whole a, Whole b) {
    if (b.value <= 0) return undefined();
    return a.value / b.value + (a.value % b.value > 0);
}
inline bool cudaops_aligned(Pointer pointer, Whole bytes) {
    return bytes.value > 0 && pointer.address % static_cast<unsigned long long>(bytes.value) == 0;
}
// A number is the null pointer where it is 0, and no place else.
inline bool is_place(const Pointer& a, const Pointer& b) { return a == b; }
template <class A, class B>
bool is_place(const A& a, const B& b) {
    return !bool(a) && !bool(b);
}
template <class A, class B>
bool cudaops_same_place(A a, B b) {
    return is_place(a, b);
}

// Arguments of the author's launch.
template <class T>
T read(const void* bytes) {
    T value;
    memcpy(&value, bytes, sizeof value);
    return value;
}
template <class T>
Whole whole(const void* bytes) {
    const T value = read<T>(bytes);
    const long long wide = static_cast<long long>(value);
    return (wide < 0) == (value < T(0)) ? Whole(wide) : Whole(undefined());
}
inline Pointer pointer(const void* bytes, long long step) {
    return {read<unsigned long long>(bytes), step};
}
inline double power_of_two(int exponent) {
    double value = 1;
    for (; exponent > 0; --exponent) value *= 2;
    for (; exponent < 0; ++exponent) value /= 2;
    return value;
}
inline double half(const void* bytes) {  // IEEE 754 binary16
    const unsigned bits = read<unsigned short>(bytes);
    const int exponent = (bits >> 10) & 31;
    const double fraction = bits & 1023, sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) return fraction != 0 ? __builtin_nan("") : sign * __builtin_inf();
    if (exponent == 0) return sign * fraction * power_of_two(-24);
    return sign * (1024 + fraction) * power_of_two(exponent - 25);
}
inline double bfloat16(const void* bytes) {
    const unsigned bits = static_cast<unsigned>(read<unsigned short>(bytes)) << 16;
    return read<float>(&bits);
}

// Arguments of the rewrite's launches, converted as a call in C++ converts them.
template <class T>
void put(unsigned char* target, Whole number) {
    const T value = static_cast<T>(number.value);
    memcpy(target, &value, sizeof value);
}
template <class T>
void put(unsigned char* target, double number) {
    if constexpr (is_floating<T> || T(2) == T(1)) {  // or bool: whether it is not zero
        const T value = static_cast<T>(number);
        memcpy(target, &value, sizeof value);
    } else if (number > -9.2e18 && number < 9.2e18) {
        put<T>(target, Whole(static_cast<long long>(number)));
    } else {
        undefined();  // no integer of 64 bits
    }
}
template <class T>
void put(unsigned char* target, bool truth) {
    put<T>(target, Whole(truth));
}
template <class T>
void put(unsigned char* target, long long number) {
    put<T>(target, Whole(number));
}
inline void put_pointer(unsigned char* target, Pointer value) {
    memcpy(target, &value.address, sizeof value.address);
}

}  // namespace cudaops
