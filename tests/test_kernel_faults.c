/* Corrupt input to the decoders of every kernel set: streams cut short at every place, every meta
 * byte, random garbage. Each must end in the fault, or the weights, that the plain decoder gives,
 * without a byte read or written outside the buffers, which end at unmapped memory.
 */
#include "check.h"
#include "cpu/kernels.h"
#include "guarded.h"
#include "packed.h"

enum { ARENA_NBYTES = 1 << 18 };

static struct guarded guard_bf16, guard_raw, guard_meta, guard_stream, guard_esc;

/* What the decoders are given, at exact sizes. */
struct input {
    size_t n;             /* weights of one row */
    const uint8_t *table; /* of 256 bytes */
    const uint8_t *raw, *meta, *stream, *esc;
    uint64_t nbits; /* rice: bits of the stream */
    size_t nidx, nesc;
};

static size_t ntiles(const struct input *in) {
    return (in->n + TILE - 1) / TILE;
}

static const uint8_t *guarded_copy(const struct guarded *g, const uint8_t *data, size_t nbytes,
                                   size_t slack) {
    uint8_t *copy = guarded_take(g, nbytes + slack, 0);
    memcpy(copy, data, nbytes);
    return copy;
}

static enum stream_fault rice_decode(const struct cpu_kernels *set, const struct input *in,
                                     uint8_t **bf16) {
    struct bit_source source = {
        guarded_copy(&guard_stream, in->stream, (size_t)(in->nbits + 7) / 8, STREAM_SLACK), 0,
        in->nbits};
    const uint8_t *raw = guarded_copy(&guard_raw, in->raw, in->n, 0);
    const uint8_t *meta = guarded_copy(&guard_meta, in->meta, ntiles(in), 0);

    *bf16 = guarded_take(&guard_bf16, 2 * in->n, 0);
    enum stream_fault fault = set->rice_decode(raw, meta, in->n, in->table, &source, *bf16);
    CHECK(guarded_is_intact(&guard_bf16, *bf16, 2 * in->n), "%s: wrote before bf16", set->name);
    CHECK(fault || source.pos <= in->nbits, "%s: read past the end", set->name);
    return fault;
}

static enum stream_fault fixed_decode(const struct cpu_kernels *set, const struct input *in,
                                      uint8_t **bf16) {
    const uint8_t *idx = guarded_copy(&guard_stream, in->stream, in->nidx, STREAM_SLACK);
    const uint8_t *esc = guarded_copy(&guard_esc, in->esc, in->nesc, STREAM_SLACK);
    const uint8_t *raw = guarded_copy(&guard_raw, in->raw, in->n, 0);
    const uint8_t *meta = guarded_copy(&guard_meta, in->meta, ntiles(in), 0);
    const uint8_t *idx_at = idx, *esc_at = esc;

    *bf16 = guarded_take(&guard_bf16, 2 * in->n, 0);
    enum stream_fault fault = set->fixed_decode(raw, meta, in->n, in->table, &idx_at,
                                                idx + in->nidx, &esc_at, esc + in->nesc, *bf16);
    CHECK(guarded_is_intact(&guard_bf16, *bf16, 2 * in->n), "%s: wrote before bf16", set->name);
    CHECK(fault || (idx_at <= idx + in->nidx && esc_at <= esc + in->nesc), "%s: read past the end",
          set->name);
    return fault;
}

static enum stream_fault count_escapes(const struct cpu_kernels *set, const struct input *in,
                                       uint64_t *nescapes) {
    const uint8_t *idx = guarded_copy(&guard_stream, in->stream, in->nidx, STREAM_SLACK);
    const uint8_t *meta = guarded_copy(&guard_meta, in->meta, ntiles(in), 0);
    return set->fixed_count_escapes(meta, ntiles(in), &idx, idx + in->nidx, nescapes);
}

/* Decodes with every set, the plain one last; all must agree. Returns its fault. */
static enum stream_fault decode_all(const struct input *in, bool rice, const char *what,
                                    size_t at) {
    enum stream_fault faults[8];
    uint8_t *weights[8], *bf16;
    size_t nsets = 0;

    for (const struct cpu_kernels *set; (set = cpu_kernels_at(nsets)) != NULL; nsets++) {
        faults[nsets] = rice ? rice_decode(set, in, &bf16) : fixed_decode(set, in, &bf16);
        weights[nsets] = must(malloc(2 * in->n));
        memcpy(weights[nsets], bf16, 2 * in->n);
    }
    enum stream_fault fault = faults[nsets - 1];
    for (size_t i = 0; i < nsets; i++) {
        const char *name = cpu_kernels_at(i)->name;
        CHECK(faults[i] == fault, "%s: %s, %zu: fault %d, expected %d", name, what, at, faults[i],
              fault);
        CHECK(fault || memcmp(weights[i], weights[nsets - 1], 2 * in->n) == 0,
              "%s: %s, %zu: other weights", name, what, at);
        free(weights[i]);
    }
    return fault;
}

static void count_all(const struct input *in, const char *what, size_t at) {
    const struct cpu_kernels *set;
    uint64_t expected, found;
    const uint8_t *idx = in->stream;
    enum stream_fault fault =
        fixed_count_escapes_plain(in->meta, ntiles(in), &idx, idx + in->nidx, &expected);

    for (size_t i = 0; (set = cpu_kernels_at(i)) != NULL; i++) {
        CHECK(count_escapes(set, in, &found) == fault && (fault || found == expected),
              "%s: %s, %zu: escapes", set->name, what, at);
    }
}

/* Every length of each stream shorter than the true one is STREAM_SHORT. */
static void test_truncation(struct sample s) {
    struct packed p = packed_open(&s);
    struct bit_source all;

    pack_plain(&s, &p);
    all = (struct bit_source){p.bits, 0, 8 * p.nbits};
    CHECK(rice_decode_plain(p.raw, p.rice_meta, s.ncols, s.table, &all, s.bf16) == STREAM_OK,
          "the whole stream");
    struct input in = {s.ncols, s.table, p.raw, p.rice_meta, p.bits, p.esc, all.pos, 0, 0};
    CHECK(decode_all(&in, true, s.name, 0) == STREAM_OK, "%s: rice", s.name);
    for (in.nbits = 0; in.nbits < all.pos; in.nbits++)
        CHECK(decode_all(&in, true, s.name, (size_t)in.nbits) == STREAM_SHORT,
              "%s: %zu bits are enough", s.name, (size_t)in.nbits);

    in = (struct input){s.ncols, s.table, p.raw, p.fixed_meta, p.idx, p.esc, 0, p.nidx, p.nesc};
    CHECK(decode_all(&in, false, s.name, 0) == STREAM_OK, "%s: fixed", s.name);
    for (in.nidx = 0; in.nidx < p.nidx; in.nidx++) {
        CHECK(decode_all(&in, false, s.name, in.nidx) == STREAM_SHORT, "%s: %zu idx are enough",
              s.name, in.nidx);
        count_all(&in, s.name, in.nidx);
    }
    in.nidx = p.nidx;
    for (in.nesc = 0; in.nesc < p.nesc; in.nesc++)
        CHECK(decode_all(&in, false, s.name, in.nesc) == STREAM_SHORT, "%s: %zu esc are enough",
              s.name, in.nesc);
    packed_close(&p);
    sample_close(&s);
}

/* Tiles with metas of all kinds over random streams, often too short. */
static void test_garbage(size_t ntrials, uint64_t seed) {
    enum { N_MAX = 4 * TILE, STREAM_NBYTES = 4 * TILE * 66 / 8 };
    static uint8_t raw[N_MAX], meta[4], stream[STREAM_NBYTES], esc[N_MAX], table[256];
    unsigned nfaults[3] = {0};

    for (size_t t = 0; t < ntrials; t++) {
        unsigned density = (unsigned)random_below(&seed, 4); /* mostly ones make planes long */
        for (size_t i = 0; i < STREAM_NBYTES; i++) {
            uint64_t bits = random_next(&seed);
            stream[i] = (uint8_t)(density == 0   ? bits
                                  : density == 1 ? bits | bits >> 8
                                  : density == 2 ? bits | bits >> 8 | bits >> 16 | bits >> 24
                                                 : 0xff);
        }
        for (size_t i = 0; i < N_MAX; i++)
            raw[i] = esc[i] = (uint8_t)random_next(&seed);
        for (size_t i = 0; i < 256; i++)
            table[i] = (uint8_t)random_next(&seed);
        for (size_t i = 0; i < 4; i++)
            meta[i] = (uint8_t)random_next(&seed);
        struct input in = {1 + random_below(&seed, N_MAX), table, raw, meta, stream, esc, 0, 0, 0};
        if (t < 512) { /* every meta alone, in a whole tile and in a short one */
            meta[0] = (uint8_t)t;
            in.n = t < 256 ? TILE : 77;
        }
        bool cut = random_below(&seed, 3) == 0;
        in.nbits = cut ? random_below(&seed, 4000) : 8 * STREAM_NBYTES;
        in.nidx = cut ? random_below(&seed, N_MAX) : N_MAX;
        in.nesc = cut ? random_below(&seed, N_MAX) : N_MAX;
        enum stream_fault fault = decode_all(&in, true, "garbage", t);
        nfaults[fault]++;
        if (t < 512)
            CHECK((fault == STREAM_BAD_META) == !rice_meta_is_valid(meta[0]), "rice meta %zu", t);
        /* Format 1 has 13 metas in 256: mostly take one of them. */
        for (size_t i = 0; i < 4 && t % 4; i++)
            meta[i] = (uint8_t)(meta[i] % 13 < 9 ? meta[i] % 13 : meta[i] % 13 + 8);
        nfaults[decode_all(&in, false, "garbage", t)]++;
        count_all(&in, "garbage", t);
    }
    for (unsigned i = 0; i < 3; i++)
        CHECK(nfaults[i] > ntrials / 20, "fault %u: %u", i, nfaults[i]);
}

/* The metas that decoders refuse, counted by hand. */
static void test_valid_metas(void) {
    unsigned nrice = 0, nfixed = 0;

    for (unsigned meta = 0; meta < 256; meta++) {
        nrice += rice_meta_is_valid((uint8_t)meta);
        nfixed += fixed_meta_is_valid((uint8_t)meta);
    }
    CHECK(nrice == 64 + 64 + 64 + 32, "%u metas of format 2", nrice);
    CHECK(nfixed == 9 + 4, "%u metas of format 1", nfixed);
}

int main(void) {
    struct guarded *const guards[] = {&guard_bf16, &guard_raw, &guard_meta, &guard_stream,
                                      &guard_esc};

    for (size_t i = 0; i < sizeof guards / sizeof *guards; i++)
        *guards[i] = guarded_open(ARENA_NBYTES);
    test_valid_metas();
    test_truncation(sample_normal(1, 300, 1));
    test_truncation(sample_random_bits(1, 200, 2));
    test_truncation(sample_sparse(1, 260, 3));
    test_garbage(4000, 4);
    for (size_t i = 0; i < sizeof guards / sizeof *guards; i++)
        guarded_close(guards[i]);
    return check_end();
}
