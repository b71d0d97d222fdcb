// Calls a kernel with its arguments: buffers of the launch, and where the thread is.

#pragma once

#include <utility>

#include "emulated_simd.h"

namespace emulated {

enum What {
    BUFFER,
    THREADGROUP,
    THREAD_POSITION_IN_GRID,
    THREAD_POSITION_IN_THREADGROUP,
    THREADGROUP_POSITION_IN_GRID,
    THREADS_PER_GRID,
    THREADGROUPS_PER_GRID,
    THREADS_PER_THREADGROUP,
    THREAD_INDEX_IN_THREADGROUP,
    THREAD_INDEX_IN_SIMDGROUP,
    SIMDGROUP_INDEX_IN_THREADGROUP,
    SIMDGROUPS_PER_THREADGROUP,
    THREADS_PER_SIMDGROUP,
};

// A parameter of a kernel, from its attribute.
struct Parameter {
    What what;
    int index;
};

template <typename T> struct ElementsOf { static constexpr int value = 1; };
template <typename T, int N> struct ElementsOf<metal::vec<T, N>> {
    static constexpr int value = N;
};

template <typename T> T convert(emulator::Uint3 v) {
    if constexpr (ElementsOf<T>::value == 3)
        return T(v.x, v.y, v.z);
    else if constexpr (ElementsOf<T>::value == 2)
        return T(v.x, v.y);
    else
        return T(v.x);
}

template <typename T> T argument(Parameter p) {
    if constexpr (std::is_pointer_v<T>) {
        return static_cast<T>(p.what == BUFFER ? emulator::buffer(p.index, 0)
                                               : emulator::dynamic_threadgroup(p.index));
    } else if constexpr (std::is_reference_v<T>) {
        using Object = std::remove_reference_t<T>;
        return *static_cast<Object *>(emulator::buffer(p.index, sizeof(Object)));
    } else {
        const emulator::Place &here = emulator::place();
        switch (p.what) {
        case THREAD_POSITION_IN_GRID:
            return convert<T>(here.thread_position_in_grid);
        case THREAD_POSITION_IN_THREADGROUP:
            return convert<T>(here.thread_position_in_threadgroup);
        case THREADGROUP_POSITION_IN_GRID:
            return convert<T>(here.threadgroup_position_in_grid);
        case THREADS_PER_GRID:
            return convert<T>(here.threads_per_grid);
        case THREADGROUPS_PER_GRID:
            return convert<T>(here.threadgroups_per_grid);
        case THREADS_PER_THREADGROUP:
            return convert<T>(here.threads_per_threadgroup);
        case THREAD_INDEX_IN_THREADGROUP:
            return T(here.thread_index_in_threadgroup);
        case THREAD_INDEX_IN_SIMDGROUP:
            return T(here.thread_index_in_simdgroup);
        case SIMDGROUP_INDEX_IN_THREADGROUP:
            return T(here.simdgroup_index_in_threadgroup);
        case SIMDGROUPS_PER_THREADGROUP:
            return T(here.simdgroups_per_threadgroup);
        default:
            return T(here.threads_per_simdgroup);
        }
    }
}

template <auto F, const Parameter *P, typename... T, size_t... I>
void call_with(void (*)(T...), std::index_sequence<I...>) {
    F(argument<T>(P[I])...);
}

template <auto F, const Parameter *P, typename... T> void call_typed(void (*f)(T...)) {
    call_with<F, P>(f, std::make_index_sequence<sizeof...(T)>());
}

template <auto F, const Parameter *P> void call() {
    call_typed<F, P>(F);
}

template <typename T>
constexpr bool is_written = (std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>>) ||
                            (std::is_reference_v<T> &&
                             !std::is_const_v<std::remove_reference_t<T>>);

template <auto F, const Parameter *P, typename... T>
constexpr emulator::Kernel describe(const char *name, void (*)(T...)) {
    emulator::Kernel entry = {name, call<F, P>, 0, 0, 0, 0};
    int i = 0;
    auto add = [&](bool written) {
        if (P[i].what == BUFFER) entry.buffers |= 1u << P[i].index;
        if (P[i].what == BUFFER && written) entry.written |= 1u << P[i].index;
        if (P[i].what == THREADGROUP) entry.dynamic |= 1u << P[i].index;
        i++;
    };
    (add(is_written<T>), ...);
    return entry;
}

} // namespace emulated
