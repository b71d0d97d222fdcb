// In place of MLX's header of this name, which tells address spaces apart; C++ has one.

#pragma once

#include <metal_stdlib>

namespace metal {

template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};
template <typename T> constexpr bool is_empty_v = is_empty<T>::value;
template <typename T> struct is_static : bool_constant<is_empty<remove_cv_t<T>>::value> {};
template <typename... T> using void_t = void;
template <typename T> using pointer_element_t = remove_cv_t<std::remove_pointer_t<remove_cv_t<T>>>;

} // namespace metal
