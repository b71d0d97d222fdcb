// Metal's vectors.

#pragma once

#include "emulated_types.h"

namespace metal {

template <typename T, int N> struct vec;

// v.xy and its like: elements I... of the vector that they lie in.
template <typename T, int... I> struct Swizzle {
    T all[4];
    operator vec<T, sizeof...(I)>() const { return vec<T, sizeof...(I)>(all[I]...); }
    Swizzle &operator=(vec<T, sizeof...(I)> value) {
        int i = 0;
        ((all[I] = value[i++]), ...);
        return *this;
    }
};

#define EMULATED_VEC_COMMON(N)                                                                     \
    vec() = default;                                                                               \
    vec(T value) {                                                                                 \
        for (int i = 0; i < N; i++)                                                                \
            data[i] = value;                                                                       \
    }                                                                                              \
    template <typename U, typename = std::enable_if_t<!std::is_same_v<T, U>>>                      \
    explicit vec(const vec<U, N> &other) {                                                         \
        for (int i = 0; i < N; i++)                                                                \
            data[i] = T(other[i]);                                                                 \
    }                                                                                              \
    T &operator[](int i) {                                                                         \
        return data[i];                                                                            \
    }                                                                                              \
    const T &operator[](int i) const {                                                             \
        return data[i];                                                                            \
    }

template <typename T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    union {
        T data[2];
        struct {
            T x, y;
        };
    };
    EMULATED_VEC_COMMON(2)
    vec(T a, T b) : data{a, b} {}
};

template <typename T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    union {
        T data[4];
        struct {
            T x, y, z;
        };
        Swizzle<T, 0, 1> xy;
    };
    EMULATED_VEC_COMMON(3)
    vec(T a, T b, T c) : data{a, b, c} {}
    vec(vec<T, 2> ab, T c) : data{ab[0], ab[1], c} {}
};

template <typename T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    union {
        T data[4];
        struct {
            T x, y, z, w;
        };
        Swizzle<T, 0, 1> xy;
        Swizzle<T, 2, 3> zw;
        Swizzle<T, 0, 1, 2> xyz;
    };
    EMULATED_VEC_COMMON(4)
    vec(T a, T b, T c, T d) : data{a, b, c, d} {}
    vec(vec<T, 2> ab, vec<T, 2> cd) : data{ab[0], ab[1], cd[0], cd[1]} {}
    vec(vec<T, 3> abc, T d) : data{abc[0], abc[1], abc[2], d} {}
};
#undef EMULATED_VEC_COMMON

// A scalar beside a vector counts for each element.
template <typename T> struct Identity { using type = T; };
template <typename T> using Same = typename Identity<T>::type;

#define EMULATED_VEC_OPERATOR(op, R)                                                               \
    template <typename T, int N> inline vec<R, N> operator op(vec<T, N> a, vec<T, N> b) {          \
        vec<R, N> out;                                                                             \
        for (int i = 0; i < N; i++)                                                                \
            out[i] = R(a[i] op b[i]);                                                              \
        return out;                                                                                \
    }                                                                                              \
    template <typename T, int N> inline vec<R, N> operator op(vec<T, N> a, Same<T> b) {            \
        return a op vec<T, N>(b);                                                                  \
    }                                                                                              \
    template <typename T, int N> inline vec<R, N> operator op(Same<T> a, vec<T, N> b) {            \
        return vec<T, N>(a) op b;                                                                  \
    }                                                                                              \
    template <typename T, int... I, typename B>                                                    \
    inline vec<R, sizeof...(I)> operator op(Swizzle<T, I...> a, B b) {                             \
        return vec<T, sizeof...(I)>(a) op vec<T, sizeof...(I)>(b);                                 \
    }                                                                                              \
    template <typename T, int... I>                                                                \
    inline vec<R, sizeof...(I)> operator op(vec<T, sizeof...(I)> a, Swizzle<T, I...> b) {          \
        return a op vec<T, sizeof...(I)>(b);                                                       \
    }
#define EMULATED_VEC_ASSIGN(op)                                                                    \
    EMULATED_VEC_OPERATOR(op, T)                                                                   \
    template <typename T, int N> inline vec<T, N> &operator op##=(vec<T, N> &a, vec<T, N> b) {     \
        return a = a op b;                                                                         \
    }                                                                                              \
    template <typename T, int N> inline vec<T, N> &operator op##=(vec<T, N> &a, Same<T> b) {       \
        return a = a op vec<T, N>(b);                                                              \
    }
EMULATED_VEC_ASSIGN(+)
EMULATED_VEC_ASSIGN(-)
EMULATED_VEC_ASSIGN(*)
EMULATED_VEC_ASSIGN(/)
EMULATED_VEC_ASSIGN(%)
EMULATED_VEC_ASSIGN(&)
EMULATED_VEC_ASSIGN(|)
EMULATED_VEC_ASSIGN(^)
EMULATED_VEC_ASSIGN(<<)
EMULATED_VEC_ASSIGN(>>)
EMULATED_VEC_OPERATOR(==, bool)
EMULATED_VEC_OPERATOR(!=, bool)
EMULATED_VEC_OPERATOR(<, bool)
EMULATED_VEC_OPERATOR(>, bool)
EMULATED_VEC_OPERATOR(<=, bool)
EMULATED_VEC_OPERATOR(>=, bool)
#undef EMULATED_VEC_ASSIGN
#undef EMULATED_VEC_OPERATOR

template <typename T, int N> inline vec<T, N> operator-(vec<T, N> a) {
    return vec<T, N>(T(0)) - a;
}
template <typename T, int N> inline vec<T, N> operator~(vec<T, N> a) {
    for (int i = 0; i < N; i++)
        a[i] = T(~a[i]);
    return a;
}
template <int N> inline bool any(vec<bool, N> v) {
    for (int i = 0; i < N; i++)
        if (v[i]) return true;
    return false;
}
template <int N> inline bool all(vec<bool, N> v) {
    for (int i = 0; i < N; i++)
        if (!v[i]) return false;
    return true;
}

// The packed forms are aligned as their elements are.
template <typename T, int N> struct packed_vec {
    T data[N];
    packed_vec() = default;
    packed_vec(vec<T, N> v) {
        for (int i = 0; i < N; i++)
            data[i] = v[i];
    }
    operator vec<T, N>() const {
        vec<T, N> out;
        for (int i = 0; i < N; i++)
            out[i] = data[i];
        return out;
    }
    T &operator[](int i) { return data[i]; }
    const T &operator[](int i) const { return data[i]; }
};

#define EMULATED_VEC_NAMES(T)                                                                      \
    using T##2 = vec<T, 2>;                                                                        \
    using T##3 = vec<T, 3>;                                                                        \
    using T##4 = vec<T, 4>;                                                                        \
    using packed_##T##2 = packed_vec<T, 2>;                                                        \
    using packed_##T##3 = packed_vec<T, 3>;                                                        \
    using packed_##T##4 = packed_vec<T, 4>;
EMULATED_VEC_NAMES(char)
EMULATED_VEC_NAMES(uchar)
EMULATED_VEC_NAMES(short)
EMULATED_VEC_NAMES(ushort)
EMULATED_VEC_NAMES(int)
EMULATED_VEC_NAMES(uint)
EMULATED_VEC_NAMES(long)
EMULATED_VEC_NAMES(ulong)
EMULATED_VEC_NAMES(float)
EMULATED_VEC_NAMES(half)
EMULATED_VEC_NAMES(bfloat)
EMULATED_VEC_NAMES(bool)
#undef EMULATED_VEC_NAMES

} // namespace metal
