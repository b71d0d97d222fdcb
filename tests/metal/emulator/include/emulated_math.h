// Metal's functions of numbers. EMULATED_FUSE tells whether products and sums are rounded together
// where Metal leaves that open.

#pragma once

#include "emulated_vec.h"

namespace metal {

#define EMULATED_ELEMENTWISE(name, expression)                                                     \
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>                    \
    inline T name(T a, T b) {                                                                      \
        return expression;                                                                         \
    }                                                                                              \
    template <typename T, int N> inline vec<T, N> name(vec<T, N> a, vec<T, N> b) {                 \
        for (int i = 0; i < N; i++)                                                                \
            a[i] = name(a[i], b[i]);                                                               \
        return a;                                                                                  \
    }
EMULATED_ELEMENTWISE(min, b < a ? b : a)
EMULATED_ELEMENTWISE(max, a < b ? b : a)
#undef EMULATED_ELEMENTWISE

template <typename T> inline T clamp(T x, Same<T> low, Same<T> high) {
    return min(max(x, T(low)), T(high));
}
template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>> inline T abs(T x) {
    return x < 0 ? T(-x) : x;
}
inline float abs(float x) {
    return __builtin_fabsf(x);
}
inline float fabs(float x) {
    return __builtin_fabsf(x);
}
inline float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
template <int N> inline vec<float, N> fma(vec<float, N> a, vec<float, N> b, vec<float, N> c) {
    for (int i = 0; i < N; i++)
        a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return a;
}
inline float log(float x) {
    return __builtin_logf(x);
}
inline float exp(float x) {
    return __builtin_expf(x);
}
inline float sqrt(float x) {
    return __builtin_sqrtf(x);
}
inline float rsqrt(float x) {
    return 1.0f / __builtin_sqrtf(x);
}
inline float atan2(float y, float x) {
    return __builtin_atan2f(y, x);
}
inline float floor(float x) {
    return __builtin_floorf(x);
}
inline bool isnan(float x) {
    return __builtin_isnan(x);
}
inline bool isinf(float x) {
    return __builtin_isinf(x);
}
namespace precise {
using metal::sqrt;
}

template <typename T> inline T select(T a, T b, bool c) {
    return c ? b : a;
}
template <typename T, int N> inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
    for (int i = 0; i < N; i++)
        a[i] = c[i] ? b[i] : a[i];
    return a;
}

inline float multiply_add(float a, float b, float c) {
#if EMULATED_FUSE
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// Which of the products are added first is the hardware's choice, so it is an option.
template <int N> inline float dot(vec<float, N> a, vec<float, N> b) {
    float sum;
    switch (emulator::options().dot) {
    case 0:
        sum = a[0] * b[0];
        for (int i = 1; i < N; i++)
            sum = multiply_add(a[i], b[i], sum);
        return sum;
    case 1:
        sum = a[N - 1] * b[N - 1];
        for (int i = N - 2; i >= 0; i--)
            sum = multiply_add(a[i], b[i], sum);
        return sum;
    case 2:
        sum = multiply_add(a[1], b[1], a[0] * b[0]);
        if constexpr (N == 3) return sum + a[2] * b[2];
        if constexpr (N == 4) return sum + multiply_add(a[3], b[3], a[2] * b[2]);
        return sum;
    default:
        if constexpr (N == 4)
            return multiply_add(a[2], b[2], a[0] * b[0]) + multiply_add(a[3], b[3], a[1] * b[1]);
        if constexpr (N == 3) return multiply_add(a[2], b[2], a[0] * b[0]) + a[1] * b[1];
        return multiply_add(a[0], b[0], a[1] * b[1]);
    }
}

// ---- Bits

template <typename T> constexpr int width_of = 8 * sizeof(T);
template <typename T> using Unsigned = std::make_unsigned_t<T>;

template <typename T> inline T popcount(T x) {
    return T(__builtin_popcountll(Unsigned<T>(x)));
}
template <typename T> inline T clz(T x) {
    return x ? T(__builtin_clzll(Unsigned<T>(x)) - (64 - width_of<T>)) : T(width_of<T>);
}
template <typename T> inline T ctz(T x) {
    return x ? T(__builtin_ctzll(Unsigned<T>(x))) : T(width_of<T>);
}
template <typename T> inline T reverse_bits(T x) {
    uint64_t r = __builtin_bitreverse64(Unsigned<T>(x));
    return T(r >> (64 - width_of<T>));
}
template <typename T> inline T extract_bits(T x, uint offset, uint nbits) {
    if (nbits == 0) return 0;
    auto up = Unsigned<T>(x) << (width_of<T> - nbits - offset);
    return T(T(up) >> (width_of<T> - nbits));
}
template <typename T> inline T insert_bits(T base, T insert, uint offset, uint nbits) {
    if (nbits == 0) return base;
    Unsigned<T> mask = Unsigned<T>(Unsigned<T>(~Unsigned<T>(0)) >> (width_of<T> - nbits)) << offset;
    return T((base & ~mask) | ((insert << offset) & mask));
}
template <typename T> inline T rotate(T x, T by) {
    uint n = uint(by) % width_of<T>;
    return n ? T((Unsigned<T>(x) << n) | (Unsigned<T>(x) >> (width_of<T> - n))) : x;
}
inline uint mulhi(uint a, uint b) {
    return uint(uint64_t(a) * b >> 32);
}
inline int mulhi(int a, int b) {
    return int(int64_t(a) * b >> 32);
}

} // namespace metal
