/* Every kernel set gives the bytes of the plain definition and restores every weight: ordinary
 * weights and hostile ones, every length up to 300, rows cut into runs, any alignment, and buffers
 * that end at unmapped memory. Deliberately wrong kernels must be caught by the same comparison.
 */
#include "check.h"
#include "cpu/kernels.h"
#include "format/fixed.h"
#include "format/rice.h"
#include "guarded.h"
#include "packed.h"
#include "samples.h"

/* How a comparison lays out memory and cuts rows. */
struct manner {
    size_t gap;     /* bytes between the ends of buffers and unmapped memory */
    size_t run;     /* tiles in a run, 0: whole rows */
    bool moves_out; /* carry the words of a run away before the next run */
};

static struct guarded guard_bf16, guard_raw, guard_meta, guard_stream, guard_esc, guard_scratch;

enum { ARENA_NBYTES = 1 << 20 };

static size_t run_length(const struct manner *m, size_t left) {
    return m->run > 0 && m->run * TILE < left ? m->run * TILE : left;
}

static bool rice_encodes(const struct cpu_kernels *set, const struct sample *s,
                         const struct packed *p, const struct manner *m) {
    uint8_t *bf16 = guarded_take(&guard_bf16, 2 * p->nweights, m->gap);
    uint8_t *raw = guarded_take(&guard_raw, p->nweights, m->gap), *raw_at = raw;
    uint8_t *meta = guarded_take(&guard_meta, p->ntiles, m->gap), *meta_at = meta;
    uint8_t *bits = guarded_take(&guard_stream, p->nbits + STREAM_SLACK, m->gap);
    uint8_t *scratch = guarded_take(&guard_scratch, ARENA_NBYTES / 2, m->gap);
    const uint8_t *bf16_at = bf16;
    struct bit_sink sink = {bits, 0, 0};

    memcpy(bf16, s->bf16, 2 * p->nweights);
    for (size_t r = 0; r < s->nrows; r++) {
        for (size_t left = s->ncols; left > 0;) {
            size_t n = run_length(m, left);
            uint8_t *home = sink.next;
            if (m->moves_out) sink.next = scratch;
            set->rice_encode(bf16_at, n, s->rank_of, raw_at, meta_at, &sink);
            if (sink.nacc >= 32 || sink.acc >> sink.nacc) return false;
            if (m->moves_out) {
                memcpy(home, scratch, (size_t)(sink.next - scratch));
                sink.next = home + (sink.next - scratch);
            }
            bf16_at += 2 * n;
            raw_at += n;
            meta_at += (n + TILE - 1) / TILE;
            left -= n;
        }
        bit_sink_end_row(&sink);
    }
    return (size_t)(sink.next - bits) == p->nbits && memcmp(bits, p->bits, p->nbits) == 0 &&
           memcmp(raw, p->raw, p->nweights) == 0 && memcmp(meta, p->rice_meta, p->ntiles) == 0 &&
           memcmp(bf16, s->bf16, 2 * p->nweights) == 0 &&
           guarded_is_intact(&guard_raw, raw, p->nweights) &&
           guarded_is_intact(&guard_meta, meta, p->ntiles) &&
           guarded_is_intact(&guard_stream, bits, p->nbits + STREAM_SLACK);
}

static bool rice_decodes(const struct cpu_kernels *set, const struct sample *s,
                         const struct packed *p, const struct manner *m) {
    uint8_t *bf16 = guarded_take(&guard_bf16, 2 * p->nweights, m->gap), *bf16_at = bf16;
    uint8_t *raw = guarded_take(&guard_raw, p->nweights, m->gap);
    uint8_t *meta = guarded_take(&guard_meta, p->ntiles, m->gap);
    uint8_t *bits = guarded_take(&guard_stream, p->nbits + STREAM_SLACK, m->gap);
    const uint8_t *raw_at = raw, *meta_at = meta;

    memcpy(raw, p->raw, p->nweights);
    memcpy(meta, p->rice_meta, p->ntiles);
    memcpy(bits, p->bits, p->nbits);
    for (size_t r = 0; r < s->nrows; r++) {
        struct bit_source source = {bits, 8 * p->row_start[r], 8 * p->row_start[r + 1]};
        for (size_t left = s->ncols; left > 0;) {
            size_t n = run_length(m, left);
            if (set->rice_decode(raw_at, meta_at, n, s->table, &source, bf16_at)) return false;
            raw_at += n;
            meta_at += (n + TILE - 1) / TILE;
            bf16_at += 2 * n;
            left -= n;
        }
        if (source.end - source.pos >= 32) return false;
    }
    return memcmp(bf16, s->bf16, 2 * p->nweights) == 0 &&
           guarded_is_intact(&guard_bf16, bf16, 2 * p->nweights);
}

static bool fixed_encodes(const struct cpu_kernels *set, const struct sample *s,
                          const struct packed *p, const struct manner *m) {
    uint8_t *bf16 = guarded_take(&guard_bf16, 2 * p->nweights, m->gap);
    uint8_t *raw = guarded_take(&guard_raw, p->nweights, m->gap), *raw_at = raw;
    uint8_t *meta = guarded_take(&guard_meta, p->ntiles, m->gap), *meta_at = meta;
    uint8_t *idx = guarded_take(&guard_stream, p->nidx + STREAM_SLACK, m->gap), *idx_at = idx;
    uint8_t *esc = guarded_take(&guard_esc, p->nesc + STREAM_SLACK, m->gap), *esc_at = esc;
    const uint8_t *bf16_at = bf16;

    memcpy(bf16, s->bf16, 2 * p->nweights);
    for (size_t r = 0; r < s->nrows; r++) {
        for (size_t left = s->ncols; left > 0;) {
            size_t n = run_length(m, left);
            set->fixed_encode(bf16_at, n, s->rank_of, raw_at, meta_at, &idx_at, &esc_at);
            bf16_at += 2 * n;
            raw_at += n;
            meta_at += (n + TILE - 1) / TILE;
            left -= n;
        }
    }
    return (size_t)(idx_at - idx) == p->nidx && memcmp(idx, p->idx, p->nidx) == 0 &&
           (size_t)(esc_at - esc) == p->nesc && memcmp(esc, p->esc, p->nesc) == 0 &&
           memcmp(raw, p->raw, p->nweights) == 0 && memcmp(meta, p->fixed_meta, p->ntiles) == 0 &&
           guarded_is_intact(&guard_raw, raw, p->nweights) &&
           guarded_is_intact(&guard_meta, meta, p->ntiles) &&
           guarded_is_intact(&guard_stream, idx, p->nidx + STREAM_SLACK) &&
           guarded_is_intact(&guard_esc, esc, p->nesc + STREAM_SLACK);
}

static bool fixed_decodes(const struct cpu_kernels *set, const struct sample *s,
                          const struct packed *p, const struct manner *m) {
    uint8_t *bf16 = guarded_take(&guard_bf16, 2 * p->nweights, m->gap), *bf16_at = bf16;
    uint8_t *raw = guarded_take(&guard_raw, p->nweights, m->gap);
    uint8_t *meta = guarded_take(&guard_meta, p->ntiles, m->gap);
    uint8_t *idx = guarded_take(&guard_stream, p->nidx + STREAM_SLACK, m->gap);
    uint8_t *esc = guarded_take(&guard_esc, p->nesc + STREAM_SLACK, m->gap);
    const uint8_t *raw_at = raw, *meta_at = meta, *idx_at = idx, *esc_at = esc;
    uint64_t nescapes = 99;

    memcpy(raw, p->raw, p->nweights);
    memcpy(meta, p->fixed_meta, p->ntiles);
    memcpy(idx, p->idx, p->nidx);
    memcpy(esc, p->esc, p->nesc);
    if (set->fixed_count_escapes(meta, p->ntiles, &idx_at, idx + p->nidx, &nescapes) ||
        nescapes != p->nesc || idx_at != idx + p->nidx)
        return false;
    idx_at = idx;
    for (size_t r = 0; r < s->nrows; r++) {
        for (size_t left = s->ncols; left > 0;) {
            size_t n = run_length(m, left);
            if (set->fixed_decode(raw_at, meta_at, n, s->table, &idx_at, idx + p->nidx, &esc_at,
                                  esc + p->nesc, bf16_at))
                return false;
            raw_at += n;
            meta_at += (n + TILE - 1) / TILE;
            bf16_at += 2 * n;
            left -= n;
        }
    }
    return idx_at == idx + p->nidx && esc_at == esc + p->nesc &&
           memcmp(bf16, s->bf16, 2 * p->nweights) == 0 &&
           guarded_is_intact(&guard_bf16, bf16, 2 * p->nweights);
}

static bool counts(const struct cpu_kernels *set, const struct sample *s, const struct manner *m) {
    size_t nweights = s->nrows * s->ncols;
    uint8_t *bf16 = guarded_take(&guard_bf16, 2 * nweights, m->gap);
    uint64_t expected[256] = {[5] = 5}, found[256] = {[5] = 5};

    memcpy(bf16, s->bf16, 2 * nweights);
    count_exponents_plain(bf16, nweights, expected);
    set->count_exponents(bf16, nweights, found);
    return memcmp(found, expected, sizeof found) == 0;
}

/* Which metas the samples reached. */
static bool rice_metas[256], fixed_metas[256];

static void check_sample(struct sample s) {
    const struct manner manners[] = {{0, 0, false}, {1, 1, false}, {2, 3, true}, {3, 2, true}};
    struct packed p = packed_open(&s);
    const struct cpu_kernels *set;

    pack_plain(&s, &p);
    for (size_t t = 0; t < p.ntiles; t++)
        rice_metas[p.rice_meta[t]] = fixed_metas[p.fixed_meta[t]] = true;
    for (size_t i = 0; (set = cpu_kernels_at(i)) != NULL; i++) {
        for (size_t j = 0; j < sizeof manners / sizeof *manners; j++) {
            const struct manner *m = &manners[j];
            CHECK(counts(set, &s, m), "%s, manner %zu: %s: counts", set->name, j, s.name);
            CHECK(rice_encodes(set, &s, &p, m), "%s, manner %zu: %s: rice_encode", set->name, j,
                  s.name);
            CHECK(rice_decodes(set, &s, &p, m), "%s, manner %zu: %s: rice_decode", set->name, j,
                  s.name);
            CHECK(fixed_encodes(set, &s, &p, m), "%s, manner %zu: %s: fixed_encode", set->name, j,
                  s.name);
            CHECK(fixed_decodes(set, &s, &p, m), "%s, manner %zu: %s: fixed_decode", set->name, j,
                  s.name);
        }
    }
    packed_close(&p);
    sample_close(&s);
}

/* ---- Kernels that are wrong on purpose -------------------------------------------------- */

/* Reads the unary planes first, then the low plane. */
static enum stream_fault decode_planes_swapped(const uint8_t *raw, const uint8_t *meta, size_t n,
                                               const uint8_t table[256], struct bit_source *source,
                                               uint8_t *bf16) {
    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE, k = *meta & 3;
        uint8_t q[TILE], low[TILE];
        enum stream_fault fault = rice_get_tile(*meta & 0xfc, nhere, source, q);

        if (!fault) fault = rice_get_tile((uint8_t)k, nhere, source, low);
        if (fault) return fault;
        for (unsigned i = 0; i < nhere; i++) {
            uint8_t e = table[(q[i] << k | low[i]) & 255];
            bf16_store(bf16, first + i, bf16_join(e, raw[first + i]));
        }
    }
    return STREAM_OK;
}

/* Writes one bit too much at the end of every run. */
static void encode_bit_too_much(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                uint8_t *raw, uint8_t *meta, struct bit_sink *sink) {
    rice_encode_plain(bf16, n, rank_of, raw, meta, sink);
    bit_sink_put(sink, 1, 1);
}

/* Reads a byte past the weights and writes it where it came from. */
static void encode_past_end(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                            uint8_t *meta, struct bit_sink *sink) {
    rice_encode_plain(bf16, n, rank_of, raw, meta, sink);
    raw[n] ^= 1;
}

/* Takes escapes in the wrong order. */
static enum stream_fault decode_escapes_late(const uint8_t *raw, const uint8_t *meta, size_t n,
                                             const uint8_t table[256], const uint8_t **idx,
                                             const uint8_t *idx_end, const uint8_t **esc,
                                             const uint8_t *esc_end, uint8_t *bf16) {
    const uint8_t *late = *esc + 1;
    enum stream_fault fault =
        fixed_decode_plain(raw, meta, n, table, idx, idx_end, &late, esc_end + 1, bf16);
    *esc = late - 1;
    return fault;
}

static void check_controls(void) {
    const struct manner whole = {1, 0, false};
    struct sample s = sample_normal(3, 700, 77);
    struct packed p = packed_open(&s);
    struct cpu_kernels wrong = {
        .name = "wrong",
        .rice_decode = decode_planes_swapped,
        .rice_encode = encode_bit_too_much,
        .fixed_decode = decode_escapes_late,
        .fixed_count_escapes = fixed_count_escapes_plain,
    };
    size_t nwith_low = 0;

    pack_plain(&s, &p);
    for (size_t t = 0; t < p.ntiles; t++)
        nwith_low += (p.rice_meta[t] & 3) != 0;
    CHECK(nwith_low > 0 && p.nesc > 1, "the control needs low planes and escapes");
    CHECK(!rice_decodes(&wrong, &s, &p, &whole), "planes in the wrong order were not noticed");
    CHECK(!rice_encodes(&wrong, &s, &p, &whole), "a bit too much was not noticed");
    wrong.rice_encode = encode_past_end;
    CHECK(!rice_encodes(&wrong, &s, &p, &whole), "a write past the end was not noticed");
    CHECK(!fixed_decodes(&wrong, &s, &p, &whole), "wrong escapes were not noticed");
    packed_close(&p);
    sample_close(&s);
}

static void check_coverage(void) {
    for (unsigned k = 0; k <= RICE_K_MAX; k++)
        CHECK(rice_metas[k | (255 >> k < RICE_Q_MAX ? 255 >> k : RICE_Q_MAX) << 2],
              "no tile with k = %u and the largest qmax", k);
    for (unsigned meta = 0; meta < 256; meta++)
        if (fixed_meta_is_valid((uint8_t)meta))
            CHECK(fixed_metas[meta], "no tile of format 1 with meta %u", meta);
}

int main(void) {
    struct guarded *const guards[] = {&guard_bf16,   &guard_raw, &guard_meta,
                                      &guard_stream, &guard_esc, &guard_scratch};
    size_t nsets = 0;

    for (size_t i = 0; i < sizeof guards / sizeof *guards; i++)
        *guards[i] = guarded_open(ARENA_NBYTES);
    for (const struct cpu_kernels *set; (set = cpu_kernels_at(nsets)) != NULL; nsets++)
        printf("kernels: %s\n", set->name);
    check_controls();
    for (size_t n = 1; n <= 300; n++) {
        check_sample(sample_normal(1, n, n));
        check_sample(sample_random_bits(2, n, n));
    }
    check_sample(sample_normal(20, 1000, 1));
    check_sample(sample_normal(3, 4096, 2));
    check_sample(sample_sparse(9, 1111, 3));
    check_sample(sample_random_bits(30, 1024, 4));
    check_sample(sample_all_patterns(1));
    check_sample(sample_all_patterns(256));
    check_sample(sample_all_patterns(1024));
    for (unsigned weight = 0; weight <= 0xffff; weight += 0x1111)
        check_sample(sample_constant(2, 333, weight));
    for (size_t ndeep = 1; ndeep <= 64; ndeep *= 4)
        check_sample(sample_deep(150, ndeep, ndeep));
    check_sample(sample_uniform(200, 5));
    check_coverage();
    for (size_t i = 0; i < sizeof guards / sizeof *guards; i++)
        guarded_close(guards[i]);
    return check_end();
}
