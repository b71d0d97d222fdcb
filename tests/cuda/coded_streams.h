/* coded_streams.h - formats 1 and 2 of BF16 in memory, by the plain C definition. */
#ifndef BINADE_CODED_STREAMS_H
#define BINADE_CODED_STREAMS_H

#include <cstdint>
#include <vector>

extern "C" {
#include "format/fixed.h"
#include "format/rank_table.h"
#include "format/rice.h"
}

struct coded_stream {
    uint8_t table[256], rank_of[256];
    std::vector<uint8_t> raw, meta, bits; /* bits: whole words, idx in format 1 */
    std::vector<uint32_t> row_starts;     /* format 2 */
    std::vector<uint8_t> escapes;         /* format 1 */
};

static inline coded_stream make_rice_stream(const uint16_t *bf16, size_t nrows, size_t ncols) {
    coded_stream s;
    uint64_t counts[256] = {0};
    size_t ntiles = (ncols + TILE - 1) / TILE;

    count_exponents_plain((const uint8_t *)bf16, nrows * ncols, counts);
    rank_table_build(counts, s.table, s.rank_of);
    s.raw.resize(nrows * ncols);
    s.meta.resize(nrows * ntiles);
    std::vector<uint8_t> row(ntiles * RICE_TILE_MAX_NBITS / 8 + STREAM_SLACK + 8);
    for (size_t r = 0; r < nrows; r++) {
        struct bit_sink sink = {row.data(), 0, 0};
        s.row_starts.push_back((uint32_t)(s.bits.size() / 4));
        rice_encode_plain((const uint8_t *)(bf16 + r * ncols), ncols, s.rank_of,
                          s.raw.data() + r * ncols, s.meta.data() + r * ntiles, &sink);
        bit_sink_end_row(&sink);
        s.bits.insert(s.bits.end(), row.data(), sink.next);
    }
    return s;
}

static inline coded_stream make_fixed_stream(const uint16_t *bf16, size_t nrows, size_t ncols) {
    coded_stream s;
    uint64_t counts[256] = {0};
    size_t ntiles = (ncols + TILE - 1) / TILE;

    count_exponents_plain((const uint8_t *)bf16, nrows * ncols, counts);
    rank_table_build(counts, s.table, s.rank_of);
    s.raw.resize(nrows * ncols);
    s.meta.resize(nrows * ntiles);
    std::vector<uint8_t> row(ntiles * TILE + STREAM_SLACK), escapes(ntiles * TILE + STREAM_SLACK);
    for (size_t r = 0; r < nrows; r++) {
        uint8_t *idx = row.data(), *esc = escapes.data();
        fixed_encode_plain((const uint8_t *)(bf16 + r * ncols), ncols, s.rank_of,
                           s.raw.data() + r * ncols, s.meta.data() + r * ntiles, &idx, &esc);
        s.bits.insert(s.bits.end(), row.data(), idx);
        s.escapes.insert(s.escapes.end(), escapes.data(), esc);
    }
    return s;
}

#endif
