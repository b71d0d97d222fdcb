/* r4_ptx.cuh - src/cuda/r4_ptx.cuh for the emulator: the same functions in C++. */
#ifndef BINADE_CUDA_R4_PTX_CUH
#define BINADE_CUDA_R4_PTX_CUH

#include "emulator.h"

#include "cuda/bf16_plain.h"

static inline uint4 r4_read16(const void *from) {
    return *(const uint4 *)from;
}

static inline uint2 r4_read8(const void *from) {
    return *(const uint2 *)from;
}

static inline unsigned short r4_round_bf16(float value) {
    return bf16_round(value);
}

/* The product is exact in a double. What the sum loses makes its last bit odd, so that no second
 * rounding errs, be it to float32, which is made odd likewise, or to BF16. */
static inline unsigned short r4_fma_bf16(unsigned short a, unsigned short b, unsigned short c) {
    const double product = (double)bf16_widen(a) * bf16_widen(b), addend = bf16_widen(c);
    double sum = product + addend, back = sum - product;
    const double lost = (product - (sum - back)) + (addend - back);
    if (lost != 0 && std::isfinite(sum) && !(emulator::cast_bits<uint64_t>(sum) & 1))
        sum = std::nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
    float rounded = (float)sum;
    if (std::isfinite(sum) && rounded != sum && !(emulator::cast_bits<uint32_t>(rounded) & 1))
        rounded = std::nextafterf(rounded, sum > rounded ? INFINITY : -INFINITY);
    return bf16_round(rounded);
}

template <class T> static inline T r4_hide(T value) {
    return value;
}

template <class T> static inline T *r4_hide(T *value) {
    return value;
}

static inline unsigned r4_warp() {
    return __shfl_sync(~0u, threadIdx.x / 32, 0);
}

template <int AT> static inline uint4 r4_shared16(unsigned address) {
    return emulator::get_shared<uint4>(address + AT);
}

template <int AT> static inline uint2 r4_shared8(unsigned address) {
    return emulator::get_shared<uint2>(address + AT);
}

static inline void r4_put_x(unsigned to, uint2 v, bool four, bool one) {
    if (four)
        emulator::put_shared<uint4>(to,
                                    {v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u});
    if (one) emulator::put_shared<unsigned>(to, v.x << 16);
}

template <int AT> static inline void r4_put_shared_floats(unsigned address, const float v[4]) {
    uint4 words;
    memcpy(&words, v, 16);
    emulator::put_shared(address + AT, words);
}

template <int AT> static inline unsigned r4_shared4(unsigned address) {
    return emulator::get_shared<unsigned>(address + AT);
}

template <int AT> static inline unsigned r4_shared2(unsigned address) {
    return emulator::get_shared<unsigned short>(address + AT);
}

template <int TO, int FROM> static inline void r4_copy(unsigned to, const unsigned char *from) {
    emulator::copy_later(to + TO, *(const uint4 *)(from + FROM));
}

template <int AT> static inline void r4_copy_if(int i, int n, unsigned to, const uint4 *from) {
    if (i < n) emulator::copy_later(to + AT, from[AT / 16]);
}

template <int N> static inline void r4_wait_copies() {
    emulator::wait_copies(N);
}

static inline void r4_commit_copies() {
    emulator::commit_copies();
}

#endif
