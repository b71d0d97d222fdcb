#include "cuda/r4_gpu_plain.h"

#include <math.h>
#include <string.h>

#include "cuda/bf16_plain.h"
#include "format/bf16.h"

enum { NLANES = 32, NCODED = R4_CODE_ESCAPE };

unsigned r4_choose_base(const uint8_t table[256]) {
    unsigned rank_of[256], best = 0, best_missed = 0;

    for (unsigned e = 0; e < 256; e++)
        rank_of[e] = 256;
    for (unsigned rank = 256; rank-- > 0;) /* exponents that do not occur are listed as 0 */
        rank_of[table[rank]] = rank;
    for (unsigned base = 0; base <= R4_BASE_MOST; base++) {
        unsigned missed = 256;
        for (unsigned e = 0; e < 256; e++)
            if ((e < base || e >= base + NCODED) && rank_of[e] < missed) missed = rank_of[e];
        if (missed > best_missed) {
            best = base;
            best_missed = missed;
        }
    }
    return best;
}

static void put_le16(uint8_t *to, unsigned value) {
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

static void put_le32(uint8_t *to, unsigned value) {
    put_le16(to, value & 0xffff);
    put_le16(to + 2, value >> 16);
}

static unsigned get_le32(const uint8_t *from) {
    return from[0] | (unsigned)from[1] << 8 | (unsigned)from[2] << 16 | (unsigned)from[3] << 24;
}

/* A lane's share of a slice, in its group or by itself. */
static void put_share(uint8_t *row, unsigned nslices, unsigned slice, unsigned lane, unsigned raw,
                      unsigned codes) {
    unsigned ngrouped = nslices / R4_GROUP_NSLICES * R4_GROUP_NSLICES;
    unsigned in_group = slice % R4_GROUP_NSLICES;

    if (slice < ngrouped) {
        uint8_t *group = row + (size_t)(slice - in_group) * R4_SLICE_NBYTES;
        uint8_t *word = group + R4_GROUP_CODES_AT + 8 * lane + in_group / 2 * 4;
        put_le32(group + 16 * lane + 4 * in_group, raw);
        if (in_group % 2 == 0) put_le32(word, 0);
        put_le32(word, get_le32(word) |
                           (in_group % 2 ? r4_join_codes(0, codes) : r4_join_codes(codes, 0)));
    } else {
        uint8_t *single = row + (size_t)slice * R4_SLICE_NBYTES;
        put_le32(single + 4 * lane, raw);
        put_le16(single + R4_SLICE_CODES_AT + 2 * lane, codes);
    }
}

size_t r4_gpu_make_plain(const uint16_t *bf16, size_t nrows, unsigned ncols, unsigned per_lane,
                         unsigned base, uint8_t *slices, struct r4_row *rows, uint32_t *escapes) {
    unsigned nslices = r4_nslices(ncols), shift = r4_mask_shift(ncols);
    size_t nescapes = 0;

    for (size_t r = 0; r < nrows; r++) {
        const uint16_t *weights = bf16 + r * ncols;
        rows[r].escape_start = (unsigned)nescapes;
        rows[r].span_mask = 0;
        for (unsigned share = 0; share < nslices * NLANES; share++) {
            unsigned raw[4] = {0}, codes[4] = {0};
            for (unsigned q = 0; q < 4; q++) {
                unsigned position = 4 * share + q, column = r4_column(position, per_lane);
                if (column >= ncols) continue;
                unsigned code = bf16_exponent(weights[column]) - base;
                raw[q] = bf16_raw(weights[column]);
                codes[q] = code < NCODED ? code : R4_CODE_ESCAPE;
                if (code < NCODED) continue;
                rows[r].span_mask |= 1u << (position / R4_SPAN_NCOLS >> shift);
                if (escapes)
                    escapes[nescapes] = r4_escape(position, bf16_exponent(weights[column]));
                nescapes++;
            }
            put_share(slices + r * nslices * R4_SLICE_NBYTES, nslices, share / NLANES,
                      share % NLANES, r4_pack_raw(raw[0], raw[1], raw[2], raw[3]),
                      r4_pack_codes(codes[0], codes[1], codes[2], codes[3]));
        }
    }
    rows[nrows].escape_start = (unsigned)nescapes;
    rows[nrows].span_mask = 0;
    return nescapes;
}

/* The lanes' sums, in pairs 16, 8, 4, 2, 1 apart. */
static float add_lanes(float sums[NLANES]) {
    float next[NLANES];

    for (unsigned apart = NLANES / 2; apart > 0; apart /= 2) {
        for (unsigned lane = 0; lane < NLANES; lane++)
            next[lane] = sums[lane] + sums[lane ^ apart];
        memcpy(sums, next, NLANES * sizeof *sums);
    }
    return sums[0];
}

void r4_gemv_plain(const uint16_t *w, const uint16_t *x, size_t nrows, size_t ncols,
                   unsigned per_lane, uint16_t *y) {
    for (size_t r = 0; r < nrows; r++, w += ncols) {
        float sums[NLANES] = {0};

        for (unsigned lane = 0; lane < NLANES; lane++)
            for (size_t k = per_lane * lane; k < ncols; k += NLANES * per_lane)
                for (unsigned j = 0; j < per_lane; j++)
                    if (k + j < ncols)
                        sums[lane] = fmaf(bf16_widen(w[k + j]), bf16_widen(x[k + j]), sums[lane]);
        y[r] = bf16_round(add_lanes(sums));
    }
}

void r4_gather_plain(const uint16_t *w, size_t ncols, const struct r4_experts *experts,
                     const struct r4_pairs *pairs, unsigned per_lane, uint16_t *y) {
    for (size_t i = 0; i < pairs->n; i++, y += experts->taken) {
        size_t x_row = pairs->lhs[i], expert = pairs->rhs[i];
        if (x_row >= pairs->nx || expert >= experts->nexperts) {
            for (size_t r = 0; r < experts->taken; r++)
                y[r] = 0x7fff;
            continue;
        }
        size_t row = expert * experts->block_nrows + experts->row0;
        r4_gemv_plain(w + row * ncols, pairs->x + x_row * ncols, experts->taken, ncols, per_lane,
                      y);
    }
}

/* Where float32 rounds a sum or product of BF16, it has at least 16 bits more than BF16 and what is
 * cut off is no more than 16 bits wide, so that rounding again is as rounding once. */
uint16_t r4_add_plain(uint16_t a, uint16_t b) {
    return bf16_round(bf16_widen(a) + bf16_widen(b));
}

uint16_t r4_multiply_plain(uint16_t a, uint16_t b) {
    return bf16_round(bf16_widen(a) * bf16_widen(b));
}

void r4_gate_plain(const uint16_t act[1 << 16], const uint16_t *gate, const uint16_t *up, size_t n,
                   uint16_t *y) {
    for (size_t i = 0; i < n; i++)
        y[i] = r4_multiply_plain(act[gate[i]], up[i]);
}

float r4_mean_square_plain(const uint16_t *x, unsigned ncols, float eps) {
    enum { NEACH = 8, NWARPS_MOST = 4 };
    unsigned nreads = (ncols + NEACH - 1) / NEACH;
    unsigned nwarps =
        nreads <= 64 || (nreads % 64 == 0 && nreads % 128 != 0 && nreads <= 512) ? 2 : 4;
    float sums[NWARPS_MOST][NLANES] = {{0}}, of_warps[NLANES] = {0};

    for (unsigned k = 0; k < ncols; k++) {
        unsigned thread = k / NEACH % (nwarps * NLANES);
        float *sum = &sums[thread / NLANES][thread % NLANES];
        *sum = fmaf(bf16_widen(x[k]), bf16_widen(x[k]), *sum);
    }
    for (unsigned warp = 0; warp < nwarps; warp++)
        of_warps[warp] = add_lanes(sums[warp]);
    return add_lanes(of_warps) / (float)ncols + eps;
}

void r4_norm_plain(const uint16_t *x, const uint16_t *weight, unsigned ncols, float scale,
                   uint16_t *normed) {
    for (unsigned k = 0; k < ncols; k++)
        normed[k] = r4_multiply_plain(weight[k], bf16_round(bf16_widen(x[k]) * scale));
}
