// What compiled Metal (AIR) calls. air.py has the calls renamed to these.
//
// A call has no line of a source, so its return address stands for its place.

#include <cstring>

#include "state.h"

using namespace emulator;

namespace {

Site here(void *return_address) {
    auto address = reinterpret_cast<uintptr_t>(return_address);
    return {"AIR", static_cast<unsigned>(address), static_cast<unsigned>(address >> 32)};
}

} // namespace

#define HERE here(__builtin_return_address(0))

extern "C" {

void emulated_air_wg_barrier(int flags, int) {
    threadgroup_barrier(flags, HERE);
}
void emulated_air_simdgroup_barrier(int flags, int) {
    simdgroup_barrier(flags, HERE);
}

float emulated_air_shuffle_down(float value, uint16_t delta) {
    float out;
    shuffle(&value, &out, sizeof out, place().thread_index_in_simdgroup + delta, HERE);
    return out;
}

void emulated_air_matrix_step(float *d, const float *a, const float *b, const float *c,
                              bool fused) {
    multiply_accumulate(d, a, b, c, fused, HERE);
}

// Inner orders as in the emulated header's dot().
float emulated_air_dot4(const float *a, const float *b, bool fused) {
    auto add = [&](int i, float sum) {
        return fused ? __builtin_fmaf(a[i], b[i], sum) : a[i] * b[i] + sum;
    };
    switch (state.options.dot) {
    case 0:
        return add(3, add(2, add(1, a[0] * b[0])));
    case 1:
        return add(0, add(1, add(2, a[3] * b[3])));
    case 2:
        return add(1, a[0] * b[0]) + add(3, a[2] * b[2]);
    default:
        return add(2, a[0] * b[0]) + add(3, a[1] * b[1]);
    }
}
}
