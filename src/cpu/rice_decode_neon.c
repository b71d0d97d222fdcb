/* Format 2 decoder, NEON, without bit deposit.
 *
 * Forward, only the lengths of the planes are needed: a plane has a bit for every one in the plane
 * before. Then from the last plane back to the first, the counts of the active weights are spread:
 * a weight whose bit is 1 takes the next count and adds 1, the others are 0.
 */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include "cpu/kernels_simd.h"
#include "cpu/neon.h"
#include "cpu/pack8.h"
#include "format/rice.h"

struct plane {
    uint64_t bits[2]; /* none past n */
    unsigned n;
};

static ALWAYS_INLINE unsigned count_ones(uint64_t bits) {
    return vaddv_u8(vcnt_u8(vcreate_u8(bits)));
}

/* Finds the planes of n weights from bit *pos on, and advances it. Returns how many are not
 * empty. */
static ALWAYS_INLINE unsigned find_planes(const uint8_t *base, uint64_t *pos, unsigned n,
                                          unsigned qmax, struct plane planes[RICE_Q_MAX]) {
    unsigned j = 0;

    for (; j < qmax && n > 0; j++) {
        struct plane *p = &planes[j];
        p->n = n;
        p->bits[0] = peek64(base, *pos) & first_lanes(n);
        p->bits[1] = n > 64 ? peek64(base, *pos + 64) & first_lanes(n - 64) : 0;
        *pos += n;
        n = count_ones(p->bits[0]) + count_ones(p->bits[1]);
    }
    return j;
}

/* Spreads the counts of the next plane (8 bytes past them are read) to those of `plane`, and fills
 * up whole vectors with 0. */
static ALWAYS_INLINE void spread_counts(const struct plane *plane, const uint8_t *next,
                                        uint8_t *counts) {
    const uint8x16_t copies = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));

    for (unsigned i = 0; i < plane->n; i += 16) {
        uint64_t bits = plane->bits[i / 64] >> i % 64;
        uint8x16_t both = vcombine_u8(vcreate_u8(bits & 0xffff), vdup_n_u8(0));
        uint8x16_t mask = vtstq_u8(vqtbl1q_u8(both, copies), bit);
        /* Minus the number of ones up to each lane, by doubling; ~ of it is the lane's index among
         * the ones, from 0 on. A lane that is 0 gets 255, which vtbl turns into 0. */
        uint8x16_t minus = mask;
        for (unsigned s = 0; s < 3; s++) {
            uint64x2_t x = vreinterpretq_u64_u8(minus);
            uint64x2_t moved = vshlq_u64(x, vdupq_n_s64((int64_t)8 << s));
            minus = vaddq_u8(minus, vreinterpretq_u8_u64(moved));
        }
        uint8x16_t index = vmvnq_u8(vandq_u8(minus, mask));
        const uint8_t *upper = next + vget_lane_u8(vcnt_u8(vcreate_u8(bits & 0xff)), 0);
        uint8x8_t one = vdup_n_u8(1);
        uint8x8_t low = vtbl1_u8(vadd_u8(vld1_u8(next), one), vget_low_u8(index));
        uint8x8_t high = vtbl1_u8(vadd_u8(vld1_u8(upper), one), vget_high_u8(index));
        vst1q_u8(counts + i, vcombine_u8(low, high));
        next = upper + vget_lane_u8(vcnt_u8(vcreate_u8(bits >> 8 & 0xff)), 0);
    }
}

/* Reads the ranks of n (1..TILE) weights; those past n are below 8. */
static ALWAYS_INLINE void get_ranks(const uint8_t *base, uint64_t *pos, unsigned n, unsigned k,
                                    unsigned qmax, uint8_t ranks[TILE]) {
    struct plane planes[RICE_Q_MAX];
    uint8_t counts[2][TILE + 16];
    uint64_t low_pos = *pos;

    *pos += n * k;
    unsigned j = find_planes(base, pos, n, qmax, planes);
    memset(counts, 0, sizeof counts);
    while (j-- > 0)
        spread_counts(&planes[j], counts[(j + 1) % 2], counts[j % 2]);
    if (k == 0) {
        memcpy(ranks, counts[0], TILE);
        return;
    }
    const struct pack8 codes = pack8_of(k);
    for (unsigned i = 0; i < n; i += 8) {
        uint64_t low = unpack8(&codes, peek64(base, low_pos + i * k));
        store64(ranks + i, load64(counts[0] + i) << k | low); /* q << k is at most 255 */
    }
    for (unsigned i = (n + 7) / 8 * 8; i < TILE; i += 8)
        store64(ranks + i, 0);
}

enum stream_fault rice_decode_neon(const uint8_t *raw, const uint8_t *meta, size_t n,
                                   const uint8_t table[256], struct bit_source *source,
                                   uint8_t *bf16) {
    const struct window128 window = window_at(table, 0);
    uint64_t pos = source->pos;

    if (pos > source->end) return STREAM_SHORT;
    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t exponents[TILE];

        if (!rice_meta_is_valid(*meta)) return STREAM_BAD_META;
        get_ranks(source->base, &pos, nhere, *meta & 3, *meta >> 2, exponents);
        if (pos > source->end) return STREAM_SHORT;
        look_up_tile(&window, exponents);
        tile_store128(bf16 + 2 * first, exponents, raw + first, nhere);
    }
    source->pos = pos;
    return STREAM_OK;
}

#else
typedef int no_rice_decode_neon; /* a file must not be empty */
#endif
