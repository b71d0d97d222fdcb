/* Format 2 encoder, NEON.
 *
 * The planes work on a list of the quotients still active: its comparison with j is the plane as it
 * is written, and a table of byte shuffles removes those that are done, 8 at a time.
 */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include "cpu/kernels_simd.h"
#include "cpu/neon.h"
#include "cpu/pack8.h"
#include "format/rice.h"

/* keep[m]: the numbers of the bits set in m, ascending, one a byte. BELOW_i(m) counts those below
 * bit i. */
#define BIT(m, i) ((uint64_t)(m) >> (i)&1)
#define BELOW_1(m) BIT(m, 0)
#define BELOW_2(m) (BELOW_1(m) + BIT(m, 1))
#define BELOW_3(m) (BELOW_2(m) + BIT(m, 2))
#define BELOW_4(m) (BELOW_3(m) + BIT(m, 3))
#define BELOW_5(m) (BELOW_4(m) + BIT(m, 4))
#define BELOW_6(m) (BELOW_5(m) + BIT(m, 5))
#define BELOW_7(m) (BELOW_6(m) + BIT(m, 6))
#define PUT(m, i) (BIT(m, i) * i << 8 * BELOW_##i(m))
#define KEEP(m) PUT(m, 1) | PUT(m, 2) | PUT(m, 3) | PUT(m, 4) | PUT(m, 5) | PUT(m, 6) | PUT(m, 7)
#define KEEP_4(m) KEEP(m), KEEP((m) + 1), KEEP((m) + 2), KEEP((m) + 3)
#define KEEP_16(m) KEEP_4(m), KEEP_4((m) + 4), KEEP_4((m) + 8), KEEP_4((m) + 12)
#define KEEP_64(m) KEEP_16(m), KEEP_16((m) + 16), KEEP_16((m) + 32), KEEP_16((m) + 48)
static const uint64_t keep[256] = {KEEP_64(0), KEEP_64(64), KEEP_64(128), KEEP_64(192)};

static ALWAYS_INLINE unsigned choose_k(const uint8_t ranks[TILE], unsigned n, unsigned *biggest) {
    uint8x16_t most = vdupq_n_u8(0), odd[RICE_K_MAX + 1], top[RICE_K_MAX + 1];
    uint16x8_t total = vdupq_n_u16(0);
    unsigned sum[RICE_K_MAX + 1], at_top[RICE_K_MAX + 1];

    for (unsigned v = 0; v < NVECTORS; v++)
        most = vmaxq_u8(most, vld1q_u8(ranks + 16 * v));
    *biggest = vmaxvq_u8(most);
    for (unsigned k = 0; k <= RICE_K_MAX; k++)
        odd[k] = top[k] = vdupq_n_u8(0);
    for (unsigned v = 0; v < NVECTORS; v++) {
        uint8x16_t rank = vld1q_u8(ranks + 16 * v);
        total = vpadalq_u8(total, rank);
        for (unsigned k = 0; k <= RICE_K_MAX; k++) {
            const uint8x16_t least = vdupq_n_u8((uint8_t)(*biggest >> k << k));
            odd[k] = vsubq_u8(odd[k], vtstq_u8(rank, vdupq_n_u8((uint8_t)(1u << k))));
            top[k] = vsubq_u8(top[k], vcgeq_u8(rank, least));
        }
    }
    sum[0] = vaddlvq_u16(total);
    for (unsigned k = 0; k < RICE_K_MAX; k++)
        sum[k + 1] = (sum[k] - vaddvq_u8(odd[k])) / 2;
    /* Weights past n have quotient 0, which would be at the top if all others have it. */
    for (unsigned k = 0; k <= RICE_K_MAX; k++)
        at_top[k] = *biggest >> k ? vaddvq_u8(top[k]) : n;
    return rice_choose_k(n, *biggest, sum, at_top);
}

static ALWAYS_INLINE void put_low_plane(const uint8_t ranks[TILE], unsigned n, unsigned k,
                                        struct bit_sink *sink) {
    const struct pack8 codes = pack8_of(k);

    for (unsigned i = 0; i < n; i += 8) {
        unsigned nhere = n - i < 8 ? n - i : 8; /* ranks past n are 0 */
        sink_put64(sink, pack8(&codes, load64(ranks + i)), nhere * k);
    }
}

/* Writes the plane of the n quotients in q, and keeps those above j. Returns how many.
 * Reads up to 64 bytes past them. */
static ALWAYS_INLINE unsigned put_plane(uint8_t *q, unsigned n, unsigned j, struct bit_sink *sink) {
    const uint8x16_t level = vdupq_n_u8((uint8_t)j);
    unsigned nkept = 0;

    for (unsigned first = 0; first < n; first += 64) {
        unsigned nhere = n - first < 64 ? n - first : 64;
        uint64_t more = mask_bits(vcgtq_u8(vld1q_u8(q + first), level),
                                  vcgtq_u8(vld1q_u8(q + first + 16), level),
                                  vcgtq_u8(vld1q_u8(q + first + 32), level),
                                  vcgtq_u8(vld1q_u8(q + first + 48), level)) &
                        first_lanes(nhere);
        /* How many are kept of the groups of 8 up to each. */
        uint64_t upto =
            vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(more))), 0) * 0x0101010101010101u;

        sink_put64(sink, more, nhere);
        for (unsigned i = 0, at = nkept; i < nhere; i += 8) {
            uint8x8_t group = vld1_u8(q + first + i);
            vst1_u8(q + at, vtbl1_u8(group, vcreate_u8(keep[more >> i & 255])));
            at = nkept + (unsigned)(upto >> i & 255);
        }
        nkept += (unsigned)(upto >> 56);
    }
    return nkept;
}

void rice_encode_neon(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                      uint8_t *meta, struct bit_sink *sink) {
    const struct window128 window = rank_window(rank_of);
    struct bit_sink out = *sink;

    for (size_t first = 0; first < n; first += TILE) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE, biggest;
        uint8_t exponents[TILE], ranks[TILE], q[TILE + 64];

        tile_load128(bf16 + 2 * first, nhere, &window, raw + first, exponents, ranks);
        unsigned k = choose_k(ranks, nhere, &biggest), qmax = biggest >> k;
        if (k > 0) put_low_plane(ranks, nhere, k, &out);
        for (unsigned v = 0; v < NVECTORS; v++)
            vst1q_u8(q + 16 * v, vshlq_u8(vld1q_u8(ranks + 16 * v), vdupq_n_s8((int8_t) - (int)k)));
        memset(q + TILE, 0, 64);
        for (unsigned j = 0, nactive = nhere; j < qmax; j++)
            nactive = put_plane(q, nactive, j, &out);
        *meta++ = (uint8_t)(k | qmax << 2);
    }
    sink_settle(&out);
    *sink = out;
}

#else
typedef int no_rice_encode_neon; /* a file must not be empty */
#endif
