// For the generated C++ that calls kernels compiled from AIR.

#pragma once

#include "runtime.h"

typedef uint32_t Vector2 __attribute__((ext_vector_type(2)));
typedef uint32_t Vector3 __attribute__((ext_vector_type(3)));

inline Vector2 vector2(emulator::Uint3 v) {
    return Vector2{v.x, v.y};
}
inline Vector3 vector3(emulator::Uint3 v) {
    return Vector3{v.x, v.y, v.z};
}
