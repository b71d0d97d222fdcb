// Functions of a simdgroup, barriers, and atomics.

#pragma once

#include "emulated_math.h"

#define EMULATED_SITE                                                                              \
    emulator::Site site = {__builtin_FILE(), unsigned(__builtin_LINE()),                           \
                           unsigned(__builtin_COLUMN())}

namespace metal {

enum class mem_flags : int {
    mem_none = emulator::MEM_NONE,
    mem_device = emulator::MEM_DEVICE,
    mem_threadgroup = emulator::MEM_THREADGROUP,
};
inline mem_flags operator|(mem_flags a, mem_flags b) {
    return mem_flags(int(a) | int(b));
}

inline void threadgroup_barrier(mem_flags flags, EMULATED_SITE) {
    emulator::threadgroup_barrier(int(flags), site);
}
inline void simdgroup_barrier(mem_flags flags, EMULATED_SITE) {
    emulator::simdgroup_barrier(int(flags), site);
}

// ---- Values from other lanes

inline uint emulated_lane() {
    return emulator::place().thread_index_in_simdgroup;
}

template <typename T> inline T emulated_shuffle(T value, uint from, const emulator::Site &site) {
    T out;
    emulator::shuffle(&value, &out, sizeof out, from, site);
    return out;
}
template <typename T> inline T simd_shuffle(T value, ushort lane, EMULATED_SITE) {
    return emulated_shuffle(value, lane % 32u, site);
}
template <typename T> inline T simd_broadcast(T value, ushort lane, EMULATED_SITE) {
    return emulated_shuffle(value, lane % 32u, site);
}
template <typename T> inline T simd_broadcast_first(T value, EMULATED_SITE) {
    uint32_t active;
    const char *all = emulator::gather(&value, sizeof value, site, &active);
    __builtin_memcpy(&value, all + __builtin_ctz(active) * emulator::SLOT, sizeof value);
    return value;
}
// Past the ends of the simdgroup a lane keeps its own value.
template <typename T> inline T simd_shuffle_down(T value, ushort delta, EMULATED_SITE) {
    return emulated_shuffle(value, emulated_lane() + delta, site);
}
template <typename T> inline T simd_shuffle_up(T value, ushort delta, EMULATED_SITE) {
    return emulated_shuffle(value, emulated_lane() - delta, site);
}
template <typename T> inline T simd_shuffle_xor(T value, ushort mask, EMULATED_SITE) {
    return emulated_shuffle(value, emulated_lane() ^ mask, site);
}
template <typename T>
inline T simd_shuffle_and_fill_up(T value, T filling, ushort delta, EMULATED_SITE) {
    uint lane = emulated_lane();
    T from_value = emulated_shuffle(value, lane - delta, site);
    T from_filling = emulated_shuffle(filling, (lane - delta) % 32, site);
    return lane < delta ? from_filling : from_value;
}

// ---- All lanes at once

// Combines the values of the active lanes before lane `end`, in the order that the options tell.
template <typename T, typename F>
inline T emulated_reduce(T value, T neutral, uint end, bool has_order, const emulator::Site &site,
                         F f) {
    uint32_t active;
    const char *all = emulator::gather(&value, sizeof value, site, &active);
    T values[32];
    for (uint lane = 0; lane < 32; lane++) {
        values[lane] = neutral;
        if (lane < end && (active >> lane & 1))
            __builtin_memcpy(&values[lane], all + lane * emulator::SLOT, sizeof value);
    }
    int order = has_order ? emulator::options().sum : 0;
    if (order == 1) {
        T sum = values[0];
        for (int lane = 1; lane < 32; lane++)
            sum = f(sum, values[lane]);
        return sum;
    }
    // A tree, of neighbours or of halves.
    for (int n = 16; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            values[i] =
                order == 0 ? f(values[i], values[i + n]) : f(values[2 * i], values[2 * i + 1]);
    return values[0];
}

#define EMULATED_REDUCTION(name, neutral, has_order, expression)                                   \
    template <typename T> inline T name(T value, EMULATED_SITE) {                                  \
        return emulated_reduce(value, T(neutral), 32, has_order, site,                             \
                               [](T a, T b) { return T(expression); });                            \
    }
EMULATED_REDUCTION(simd_sum, 0, (std::is_same_v<T, float>), a + b)
EMULATED_REDUCTION(simd_product, 1, (std::is_same_v<T, float>), a *b)
EMULATED_REDUCTION(simd_min, numeric_limits<T>::max(), false, b < a ? b : a)
EMULATED_REDUCTION(simd_max, numeric_limits<T>::lowest(), false, a < b ? b : a)
EMULATED_REDUCTION(simd_or, 0, false, a | b)
EMULATED_REDUCTION(simd_xor, 0, false, a ^ b)
EMULATED_REDUCTION(simd_and, ~T(0), false, a &b)
#undef EMULATED_REDUCTION

template <typename T> inline T simd_prefix_inclusive_sum(T value, EMULATED_SITE) {
    return emulated_reduce(value, T(0), emulated_lane() + 1, std::is_same_v<T, float>, site,
                           [](T a, T b) { return T(a + b); });
}
template <typename T> inline T simd_prefix_exclusive_sum(T value, EMULATED_SITE) {
    return emulated_reduce(value, T(0), emulated_lane(), std::is_same_v<T, float>, site,
                           [](T a, T b) { return T(a + b); });
}

struct simd_vote {
    using vote_t = uint64_t;
    uint64_t votes;
    explicit operator vote_t() const { return votes; }
};
inline simd_vote simd_ballot(bool yes, EMULATED_SITE) {
    uint mine = yes ? 1u << emulated_lane() : 0;
    uint all = emulated_reduce(mine, 0u, 32, false, site, [](uint a, uint b) { return a | b; });
    return {all};
}
inline bool simd_any(bool yes, EMULATED_SITE) {
    return emulated_reduce(uint(yes), 0u, 32, false, site, [](uint a, uint b) { return a | b; }) !=
           0;
}
inline bool simd_all(bool yes, EMULATED_SITE) {
    return emulated_reduce(uint(yes), 1u, 32, false, site, [](uint a, uint b) { return a & b; }) !=
           0;
}

// ---- 8 x 8 matrices, two elements a lane

template <typename T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "matrices are 8 x 8");
    vec<T, 2> elements;

    simdgroup_matrix() = default;
    // A diagonal.
    explicit simdgroup_matrix(T value) {
        uint row, column;
        place_of(row, column);
        elements = vec<T, 2>(row == column ? value : T(0), row == column + 1 ? value : T(0));
    }
    vec<T, 2> &thread_elements() { return elements; }
    const vec<T, 2> &thread_elements() const { return elements; }

    static void place_of(uint &row, uint &column) {
        uint lane = emulated_lane();
        row = (lane / 4 & 4) + lane / 2 % 4;
        column = (lane / 4 & 2) * 2 + lane % 2 * 2;
    }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <typename T, int R, int C>
inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, R, C> m;
    m.elements = vec<T, 2>(value);
    return m;
}
template <typename T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *from, ulong per_row = 8,
                           ulong2 origin = ulong2(0), bool transpose = false, EMULATED_SITE) {
    uint row, column;
    m.place_of(row, column);
    emulator::simdgroup_barrier(emulator::MEM_NONE, site);
    for (uint i = 0; i < 2; i++) {
        uint x = transpose ? row : column + i, y = transpose ? column + i : row;
        m.elements[i] = from[(origin.y + y) * per_row + origin.x + x];
    }
}
template <typename T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, T *to, ulong per_row = 8,
                            ulong2 origin = ulong2(0), bool transpose = false, EMULATED_SITE) {
    uint row, column;
    m.place_of(row, column);
    emulator::simdgroup_barrier(emulator::MEM_NONE, site);
    for (uint i = 0; i < 2; i++) {
        uint x = transpose ? row : column + i, y = transpose ? column + i : row;
        to[(origin.y + y) * per_row + origin.x + x] = m.elements[i];
    }
}
template <typename D, typename A, typename B, typename C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d,
                                          const simdgroup_matrix<A, 8, 8> &a,
                                          const simdgroup_matrix<B, 8, 8> &b,
                                          const simdgroup_matrix<C, 8, 8> &c, EMULATED_SITE) {
    float in[6] = {float(a.elements[0]), float(a.elements[1]), float(b.elements[0]),
                   float(b.elements[1]), float(c.elements[0]), float(c.elements[1])};
    float out[2];
    emulator::multiply_accumulate(out, in, in + 2, in + 4, EMULATED_FUSE, site);
    d.elements = vec<D, 2>(D(out[0]), D(out[1]));
}
template <typename D, typename A, typename B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                               const simdgroup_matrix<B, 8, 8> &b, EMULATED_SITE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)), site);
}

// ---- Atomics

enum memory_order { memory_order_relaxed };
template <typename T> struct atomic { T value; };
using atomic_uint = atomic<uint>;
using atomic_int = atomic<int>;

#define EMULATED_ATOMIC(name, op)                                                                  \
    template <typename T>                                                                          \
    inline T name(volatile atomic<T> *object, Same<T> operand, memory_order) {                     \
        return T(emulator::atomic(op, object, uint32_t(operand), std::is_signed_v<T>));            \
    }
EMULATED_ATOMIC(atomic_fetch_add_explicit, emulator::ATOMIC_ADD)
EMULATED_ATOMIC(atomic_fetch_or_explicit, emulator::ATOMIC_OR)
EMULATED_ATOMIC(atomic_fetch_and_explicit, emulator::ATOMIC_AND)
EMULATED_ATOMIC(atomic_fetch_min_explicit, emulator::ATOMIC_MIN)
EMULATED_ATOMIC(atomic_fetch_max_explicit, emulator::ATOMIC_MAX)
#undef EMULATED_ATOMIC
template <typename T>
inline void atomic_store_explicit(volatile atomic<T> *object, Same<T> value, memory_order) {
    emulator::atomic(emulator::ATOMIC_STORE, object, uint32_t(value), false);
}
template <typename T>
inline T atomic_load_explicit(const volatile atomic<T> *object, memory_order) {
    return T(emulator::atomic(emulator::ATOMIC_LOAD, object, 0, false));
}

} // namespace metal

using metal::simd_vote;
