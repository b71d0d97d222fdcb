#include "r4/r4_plain.h"

#include "format/bf16.h"

void r4_lookup_build(const uint8_t exponents[16], struct r4_lookup *lookup) {
    for (unsigned code = 0; code < 16; code++) {
        lookup->high[code] = (uint8_t)(exponents[code] >> 1);
        lookup->low[code] = (uint8_t)(exponents[code] << 7);
    }
}

/* w[4][16], rows `stride` apart */
static void decode_group(const struct r4_lookup *lookup, const uint8_t *group,
                         const uint8_t **escapes, float *w, size_t stride) {
    for (unsigned p = 0; p < R4_NWEIGHTS; p++) {
        unsigned code = r4_code(group, p);
        unsigned high = lookup->high[code], low = lookup->low[code];
        if (code == R4_ESCAPE) {
            unsigned exponent = *(*escapes)++;
            high = exponent >> 1;
            low = exponent << 7 & 0x80;
        }
        unsigned weight = (group[p] & 0x80u) << 8 | high << 8 | low | (group[p] & 0x7fu);
        w[r4_col(p) * stride + r4_row(p)] = r4_widen((uint16_t)weight);
    }
}

void r4_decode_plain(const struct r4_lookup *lookup, const uint8_t *groups, size_t ngroups,
                     const uint8_t **escapes, float *w, size_t stride) {
    for (size_t g = 0; g < ngroups; g++)
        decode_group(lookup, groups + g * R4_NBYTES, escapes, w + g * R4_NCOLS * stride, stride);
}

void r4_matvec_plain(const struct r4_lookup *lookup, const uint8_t *groups, size_t block_nbytes,
                     const uint8_t **escapes, size_t nblocks, const float *x, size_t ncols,
                     float *sums) {
    float w[R4_NCOLS * R4_NROWS];

    for (size_t b = 0; b < nblocks; b++) {
        for (size_t col = 0; col < ncols; col++) {
            if (col % R4_NCOLS == 0)
                decode_group(lookup, groups + b * block_nbytes + col / R4_NCOLS * R4_NBYTES,
                             &escapes[b], w, R4_NROWS);
            for (size_t r = 0; r < R4_NROWS; r++) {
                float *sum = &sums[b * R4_NROWS + r];
                *sum = r4_step(*sum, x[col], w[col % R4_NCOLS * R4_NROWS + r]);
            }
        }
    }
}

void r4_gemm_plain(const float *w, size_t nblocks, size_t ncols, const float *x, size_t ldx,
                   size_t nrows, float *sums) {
    for (size_t m = 0; m < nrows; m++) {
        for (size_t col = 0; col < ncols; col++) {
            for (size_t r = 0; r < nblocks * R4_NROWS; r++) {
                float *sum = &sums[m * R4_PANEL + r];
                *sum = r4_step(*sum, x[m * ldx + col], w[col * R4_PANEL + r]);
            }
        }
    }
}

void r4_widen_plain(const uint16_t *bf16, size_t n, float *out) {
    for (size_t i = 0; i < n; i++)
        out[i] = r4_widen(bf16[i]);
}

/* Whether four bits in a row, from a multiple of four on, are all ones. */
static bool has_escape(const uint8_t *group) {
    for (size_t i = 0; i < R4_NWEIGHTS / 2; i += sizeof(uint64_t)) {
        uint64_t codes;
        memcpy(&codes, group + R4_NWEIGHTS + i, sizeof codes);
        codes &= codes >> 2;
        if (codes & codes >> 1 & UINT64_C(0x1111111111111111)) return true;
    }
    return false;
}

void r4_put_escapes(const uint8_t *groups, size_t ngroups, const uint8_t *bf16, size_t stride,
                    uint8_t **escapes) {
    for (size_t g = 0; g < ngroups; g++, groups += R4_NBYTES, bf16 += 2 * R4_NCOLS) {
        if (!has_escape(groups)) continue;
        for (unsigned p = 0; p < R4_NWEIGHTS; p++) {
            if (r4_code(groups, p) == R4_ESCAPE)
                *(*escapes)++ = bf16_exponent(bf16_load(bf16 + r4_row(p) * stride, r4_col(p)));
        }
    }
}

void r4_encode_plain(const uint8_t *bf16, size_t stride, size_t nrows, size_t ncols,
                     const uint8_t code_of[256], uint8_t *groups, uint8_t **escapes) {
    for (size_t col = 0; col < ncols; col += R4_NCOLS) {
        memset(groups, 0, R4_NBYTES);
        for (unsigned p = 0; p < R4_NWEIGHTS; p++) {
            if (r4_row(p) >= nrows || col + r4_col(p) >= ncols) continue;
            unsigned weight = bf16_load(bf16 + r4_row(p) * stride, col + r4_col(p));
            unsigned code = code_of[bf16_exponent(weight)];
            groups[p] = bf16_raw(weight);
            groups[R4_NWEIGHTS + p % 32] |= (uint8_t)(code << (p / 32 * 4));
        }
        r4_put_escapes(groups, 1, bf16 + 2 * col, stride, escapes);
        groups += R4_NBYTES;
    }
}
