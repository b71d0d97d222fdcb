// In place of MLX's header of this name, whose constructors differ only by address space. Complex
// kernels are named in the headers that are compiled, and never run.

#pragma once

#include <metal_stdlib>

template <typename T> struct complex_t {
    T real, imag;
    complex_t() = default;
    constexpr complex_t(T r, T i = T(0)) : real(r), imag(i) {}
    complex_t &operator+=(complex_t b) { return real += b.real, imag += b.imag, *this; }
};
using complex64_t = complex_t<float>;
