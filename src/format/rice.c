#include "format/rice.h"

#include "format/bf16.h"

static unsigned choose_k(const uint8_t *ranks, unsigned n, unsigned *biggest) {
    unsigned sum[4] = {0}, at_top[4] = {0};

    *biggest = 0;
    for (unsigned i = 0; i < n; i++)
        if (ranks[i] > *biggest) *biggest = ranks[i];
    for (unsigned k = 0; k <= RICE_K_MAX; k++) {
        for (unsigned i = 0; i < n; i++) {
            sum[k] += ranks[i] >> k;
            at_top[k] += (unsigned)ranks[i] >> k == *biggest >> k;
        }
    }
    return rice_choose_k(n, *biggest, sum, at_top);
}

void rice_put_tile(const uint8_t *ranks, unsigned n, uint8_t *meta, struct bit_sink *sink) {
    unsigned biggest, k = choose_k(ranks, n, &biggest), qmax = biggest >> k;
    struct bit_sink out = *sink;
    uint8_t q[TILE]; /* of the weights still in the planes, in weight order */

    *meta = (uint8_t)(k | qmax << 2);
    for (unsigned i = 0; i < n; i++) {
        bit_sink_put(&out, ranks[i] & ((1u << k) - 1), k);
        q[i] = (uint8_t)(ranks[i] >> k);
    }
    for (unsigned j = 0; j < qmax; j++) {
        unsigned nstay = 0;
        for (unsigned i = 0; i < n; i++) {
            unsigned stays = q[i] > j;
            bit_sink_put(&out, stays, 1);
            q[nstay] = q[i];
            nstay += stays;
        }
        n = nstay;
    }
    *sink = out;
}

/* 8 bits from bit `pos` on. */
static inline unsigned peek(const uint8_t *base, uint64_t pos) {
    const uint8_t *at = base + (pos >> 3);
    return ((unsigned)at[0] | (unsigned)at[1] << 8) >> (pos & 7);
}

enum stream_fault rice_get_tile(uint8_t meta, unsigned n, struct bit_source *source,
                                uint8_t *ranks) {
    unsigned k = meta & 3, qmax = meta >> 2, nactive = n;
    const uint8_t *base = source->base;
    uint64_t pos = source->pos;
    uint8_t active[TILE]; /* the weights still in the planes, ascending */

    if (!rice_meta_is_valid(meta)) return STREAM_BAD_META;
    for (unsigned i = 0; i < n; i++) {
        ranks[i] = (uint8_t)(peek(base, pos) & ((1u << k) - 1));
        active[i] = (uint8_t)i;
        pos += k;
    }
    for (unsigned j = 0; j < qmax; j++) {
        unsigned nstay = 0;
        for (unsigned i = 0; i < nactive; i++) {
            uint8_t weight = active[i];
            unsigned stays = peek(base, pos++) & 1;
            ranks[weight] = (uint8_t)(ranks[weight] + (stays << k));
            active[nstay] = weight;
            nstay += stays;
        }
        nactive = nstay;
    }
    source->pos = pos;
    return pos <= source->end ? STREAM_OK : STREAM_SHORT;
}

void rice_encode_plain(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                       uint8_t *meta, struct bit_sink *sink) {
    for (size_t first = 0; first < n; first += TILE) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t ranks[TILE];

        for (unsigned i = 0; i < nhere; i++) {
            unsigned weight = bf16_load(bf16, first + i);
            raw[first + i] = bf16_raw(weight);
            ranks[i] = rank_of[bf16_exponent(weight)];
        }
        rice_put_tile(ranks, nhere, meta++, sink);
    }
}

enum stream_fault rice_decode_plain(const uint8_t *raw, const uint8_t *meta, size_t n,
                                    const uint8_t table[256], struct bit_source *source,
                                    uint8_t *bf16) {
    if (source->pos > source->end) return STREAM_SHORT;
    for (size_t first = 0; first < n; first += TILE) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t ranks[TILE];
        enum stream_fault fault = rice_get_tile(*meta++, nhere, source, ranks);

        if (fault) return fault;
        for (unsigned i = 0; i < nhere; i++)
            bf16_store(bf16, first + i, bf16_join(table[ranks[i]], raw[first + i]));
    }
    return STREAM_OK;
}
