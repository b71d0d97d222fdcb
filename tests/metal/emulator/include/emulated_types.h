// Metal's scalar types and keywords, for a C++ compiler.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../runtime.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

// An attribute of the function that rounds to bfloat.
#ifndef EMULATED_ROUND
#define EMULATED_ROUND always_inline
#endif

namespace metal {

template <typename To, typename From> constexpr To as_type(From from) {
    return __builtin_bit_cast(To, from);
}

// The upper half of a float. Every NaN that arithmetic makes is the same, so that no difference
// stems from which of two payloads a CPU hands on.
struct bfloat {
    uint16_t bits;

    bfloat() = default;
    constexpr explicit bfloat(float value) : bits(round(value)) {}
    constexpr explicit bfloat(double value) : bits(round(float(value))) {}
    template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
    constexpr bfloat(T value) : bits(round(float(value))) {}

    constexpr operator float() const { return as_type<float>(uint32_t(bits) << 16); }

    constexpr bfloat operator-() const { return as_type<bfloat>(uint16_t(bits ^ 0x8000)); }
    bfloat &operator+=(bfloat b) { return *this = bfloat(float(*this) + float(b)); }
    bfloat &operator-=(bfloat b) { return *this = bfloat(float(*this) - float(b)); }
    bfloat &operator*=(bfloat b) { return *this = bfloat(float(*this) * float(b)); }
    bfloat &operator/=(bfloat b) { return *this = bfloat(float(*this) / float(b)); }

  private:
    __attribute__((EMULATED_ROUND)) static constexpr uint16_t round(float value) {
        uint32_t word = as_type<uint32_t>(value);
        if ((word & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0;
        return uint16_t((word + 0x7FFF + (word >> 16 & 1)) >> 16);
    }
};

// IEEE's 16 bits. Kernels here only name it, so conversions suffice.
struct half {
    uint16_t bits;

    half() = default;
    constexpr explicit half(float value) : bits(__builtin_bit_cast(uint16_t, __fp16(value))) {}
    template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
    constexpr half(T value) : half(float(value)) {}
    constexpr operator float() const { return float(__builtin_bit_cast(__fp16, bits)); }
    constexpr half operator-() const { return as_type<half>(uint16_t(bits ^ 0x8000)); }
};

// Both operands bfloat give a bfloat; with a float the result is float, by conversion.
#define EMULATED_BFLOAT_OPERATOR(op)                                                               \
    template <typename T, std::enable_if_t<std::is_same_v<T, bfloat>, int> = 0>                    \
    inline bfloat operator op(T a, T b) {                                                          \
        return bfloat(float(a) op float(b));                                                       \
    }
EMULATED_BFLOAT_OPERATOR(+)
EMULATED_BFLOAT_OPERATOR(-)
EMULATED_BFLOAT_OPERATOR(*)
EMULATED_BFLOAT_OPERATOR(/)
#undef EMULATED_BFLOAT_OPERATOR

template <typename T> struct numeric_limits : std::numeric_limits<T> {};
template <> struct numeric_limits<bfloat> {
    static constexpr bfloat infinity() { return as_type<bfloat>(uint16_t(0x7F80)); }
    static constexpr bfloat max() { return as_type<bfloat>(uint16_t(0x7F7F)); }
};
template <> struct numeric_limits<half> {
    static constexpr half infinity() { return as_type<half>(uint16_t(0x7C00)); }
    static constexpr half max() { return as_type<half>(uint16_t(0x7BFF)); }
};

using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_convertible_v;
using std::is_floating_point;
using std::is_integral;
using std::is_integral_v;
using std::is_same;
using std::is_same_v;
using std::make_signed_t;
using std::make_unsigned_t;
using std::remove_cv;
using std::remove_cv_t;
using std::true_type;
template <bool B> using bool_constant = std::bool_constant<B>;
template <typename T> using remove_addrspace_t = T;

template <typename T> using uniform = T;
template <typename T> constexpr T make_uniform(T value) {
    return value;
}

} // namespace metal

using metal::as_type;
using metal::bfloat;
using metal::half;

// Metal's keywords. Standard headers come before them.
#define METAL_FUNC inline __attribute__((always_inline))
#define device
#define constant
#define thread
#define threadgroup
#define kernel
