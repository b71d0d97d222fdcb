/* r4_encode_neon.c - 16 rows x 16 columns at a time; r4_encode_avx512.c says how. */
#if defined(__aarch64__)

#include "cpu/neon.h"
#include "cpu/r4_kernels.h"
#include "r4/r4_plain.h"

enum { STRIP_NCOLS = 16, STRIP_NGROUPS = STRIP_NCOLS / R4_NCOLS };
_Static_assert(R4_NROWS *STRIP_NCOLS == 2 * TILE, "codes are looked up in two tiles");

/* Four rows of bytes, one behind the other, become columns: vector i is columns 4 * i.. of them. */
static ALWAYS_INLINE void interleave(const uint8_t rows[4 * STRIP_NCOLS], uint8x16_t columns[4]) {
    uint8x16_t r0 = vld1q_u8(rows), r1 = vld1q_u8(rows + 16);
    uint8x16_t r2 = vld1q_u8(rows + 32), r3 = vld1q_u8(rows + 48);
    uint16x8_t low01 = vreinterpretq_u16_u8(vzip1q_u8(r0, r1));
    uint16x8_t high01 = vreinterpretq_u16_u8(vzip2q_u8(r0, r1));
    uint16x8_t low23 = vreinterpretq_u16_u8(vzip1q_u8(r2, r3));
    uint16x8_t high23 = vreinterpretq_u16_u8(vzip2q_u8(r2, r3));

    columns[0] = vreinterpretq_u8_u16(vzip1q_u16(low01, low23));
    columns[1] = vreinterpretq_u8_u16(vzip2q_u16(low01, low23));
    columns[2] = vreinterpretq_u8_u16(vzip1q_u16(high01, high23));
    columns[3] = vreinterpretq_u8_u16(vzip2q_u16(high01, high23));
}

/* Splits ncols (1..16) weights of each row; the bytes of missing weights are 0. */
static void split_strip(const uint8_t *bf16, size_t stride, size_t nrows, unsigned ncols,
                        const struct window128 *code_of, uint8_t raw[2 * TILE],
                        uint8_t codes[2 * TILE]) {
    uint8_t copy[2 * STRIP_NCOLS];

    memset(raw, 0, 2 * TILE);
    memset(codes, 0, 2 * TILE);
    for (size_t row = 0; row < nrows; row++) {
        const uint8_t *from = bf16 + row * stride;
        if (ncols < STRIP_NCOLS) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, from, 2 * (size_t)ncols);
            from = copy;
        }
        struct split128 w = bf16_load128(from);
        vst1q_u8(raw + row * STRIP_NCOLS, w.raw);
        vst1q_u8(codes + row * STRIP_NCOLS, w.exponent);
    }
    look_up_tile(code_of, codes);
    look_up_tile(code_of, codes + TILE);
    for (size_t row = 0; row < R4_NROWS; row++) {
        unsigned n = row < nrows ? ncols : 0;
        if (n < STRIP_NCOLS) memset(codes + row * STRIP_NCOLS + n, 0, STRIP_NCOLS - n);
    }
}

/* Whether the strip has escapes. */
static bool encode_strip(const uint8_t *bf16, size_t stride, size_t nrows, unsigned ncols,
                         const struct window128 *code_of, uint8_t *groups) {
    uint8_t raw[2 * TILE], codes[2 * TILE];
    uint8x16_t columns[4], code_columns[4][4], most = vdupq_n_u8(0);

    split_strip(bf16, stride, nrows, ncols, code_of, raw, codes);
    for (unsigned q = 0; q < 4; q++) {
        interleave(raw + q * 4 * STRIP_NCOLS, columns);
        interleave(codes + q * 4 * STRIP_NCOLS, code_columns[q]);
        for (unsigned g = 0; g < STRIP_NGROUPS; g++) {
            vst1q_u8(groups + g * R4_NBYTES + q * 16, columns[g]);
            most = vmaxq_u8(most, code_columns[q][g]);
        }
    }
    for (unsigned half = 0; half < 2; half++)
        for (unsigned g = 0; g < STRIP_NGROUPS; g++)
            vst1q_u8(groups + g * R4_NBYTES + R4_NWEIGHTS + half * 16,
                     vsliq_n_u8(code_columns[half][g], code_columns[half + 2][g], 4));
    return vmaxvq_u8(most) == R4_ESCAPE;
}

void r4_encode_neon(const uint8_t *bf16, size_t stride, size_t nrows, size_t ncols,
                    const uint8_t code_of[256], uint8_t *groups, uint8_t **escapes) {
    struct window128 window = rank_window(code_of);

    for (size_t col = 0; col < ncols; col += STRIP_NCOLS) {
        uint8_t copy[STRIP_NGROUPS * R4_NBYTES];
        unsigned n = ncols - col < STRIP_NCOLS ? (unsigned)(ncols - col) : STRIP_NCOLS;
        unsigned ngroups = (n + R4_NCOLS - 1) / R4_NCOLS;
        bool whole = n == STRIP_NCOLS;
        bool any = encode_strip(bf16 + 2 * col, stride, nrows, n, &window, whole ? groups : copy);
        if (!whole) memcpy(groups, copy, ngroups * R4_NBYTES);
        if (any) r4_put_escapes(groups, ngroups, bf16 + 2 * col, stride, escapes);
        groups += ngroups * R4_NBYTES;
    }
}

#endif
