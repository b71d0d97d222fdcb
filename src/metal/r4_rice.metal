/* r4_rice.metal - a row of format 2 (docs/FORMAT.md) to R4. Stands behind r4_sink.metal.
 *
 * The simdgroup holds 32 words of the row's stream, one a lane.
 */

/* Bits count from the row's first. */
template <class W> struct r4_rice {
    W words;
    uint nwords, held_from, held, bit;
};

/* Holds the words from `bit` on, if not nbits more from there are held. */
template <class W> METAL_FUNC void r4_hold_bits(thread r4_rice<W> &rice, uint nbits, uint lane) {
    if ((rice.bit + nbits + 31) / 32 < rice.held_from + 32) return;
    rice.held_from = rice.bit / 32;
    uint at = rice.held_from + lane;
    rice.held = at < rice.nwords ? rice.words[at] : 0;
}

template <class W> METAL_FUNC uint r4_held_word(const thread r4_rice<W> &rice, uint i) {
    return simd_shuffle(rice.held, ushort(i & 31));
}

/* Ranks of weights lane + 32 s, s = 0..3, of a tile of n. */
template <class W>
METAL_FUNC uint4 r4_read_ranks(thread r4_rice<W> &rice, uint meta, uint n, uint lane) {
    const uint k = meta & 3, qmax = meta >> 2;
    uint4 ranks(0), active;

    R4_UNROLL
    for (uint s = 0; s < 4; s++)
        active[s] = r4_ballot(lane + 32 * s < n);
    if (k) {
        r4_hold_bits(rice, R4_SLICE_NCOLS * k + 32, lane);
        R4_UNROLL
        for (uint s = 0; s < 4; s++) {
            uint bit = rice.bit - rice.held_from * 32 + (lane + 32 * s) * k;
            uint low = r4_held_word(rice, bit / 32), high = r4_held_word(rice, bit / 32 + 1);
            uint both = bit % 32 ? low >> bit % 32 | high << (32 - bit % 32) : low;
            ranks[s] = both & ((1u << k) - 1);
        }
        rice.bit += n * k;
    }
    for (uint j = 0; j < qmax; j++) {
        uint before = 0;
        r4_hold_bits(rice, R4_SLICE_NCOLS, lane);
        R4_UNROLL
        for (uint s = 0; s < 4; s++) {
            uint bit = rice.bit - rice.held_from * 32 + before;
            bit += popcount(active[s] & r4_lower_lanes(lane));
            uint word = r4_held_word(rice, bit / 32);
            uint stays = word >> bit % 32 & active[s] >> lane & 1;
            before += popcount(active[s]);
            active[s] = r4_ballot(stays != 0);
            ranks[s] += stays << k;
        }
        rice.bit += before;
    }
    return ranks;
}

constant constexpr uint R4_LOAD_NSIMDS = 8; /* rows of a threadgroup */

/* Copies the exponents by rank; the first thing that a threadgroup of 256 does. */
template <class B>
METAL_FUNC void r4_stage_table(B table, uint thread_index, threadgroup uchar *ranked) {
    ranked[thread_index] = table[thread_index];
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

/* Ranks of a slice to the exponents of this lane's weights, by way of threadgroup memory of the
 * simdgroup. 0 where there is no column. */
METAL_FUNC uint4 r4_look_up(uint4 ranks, uint n, uint lane, threadgroup const uchar *table,
                            threadgroup uchar *exponents) {
    uint4 mine;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    R4_UNROLL
    for (uint s = 0; s < 4; s++)
        exponents[lane + 32 * s] = lane + 32 * s < n ? table[ranks[s] & 255] : 0;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    R4_UNROLL
    for (uint q = 0; q < 4; q++)
        mine[q] = exponents[R4_LANE_NCOLS * lane + q];
    return mine;
}

/* The parts of format 2. sizes: K, rows, words of `bits`, base. `starts` is NAME.roff. */
template <class B, class M, class W, class S> struct r4_rice_source {
    typedef W words_type;
    B raw;
    M meta;
    W bits;
    S starts;
    const constant int *sizes;
};

template <class B, class M, class W, class S>
METAL_FUNC r4_rice_source<B, M, W, S> r4_rice_parts(B raw, M meta, W bits, S starts,
                                                    const constant int *sizes) {
    r4_rice_source<B, M, W, S> source;
    source.raw = raw;
    source.meta = meta;
    source.bits = bits;
    source.starts = starts;
    source.sizes = sizes;
    return source;
}

template <bool FIRST, class Source>
METAL_FUNC void r4_decode_rice(Source source, uint row, uint lane, threadgroup const uchar *table,
                               threadgroup uchar *exponents, thread r4_sink<FIRST> &sink) {
    const uint ncols = uint(source.sizes[0]), nrows = uint(source.sizes[1]);
    const uint nwords = uint(source.sizes[2]), nslices = r4_nslices(ncols);
    const uint start = source.starts[row], end = row + 1 < nrows ? source.starts[row + 1] : nwords;
    r4_rice<typename Source::words_type> rice;
    uint codes_before = 0;

    rice.words = source.bits + min(start, nwords);
    rice.nwords = end - start;
    rice.held_from = rice.bit = 0;
    if (end < start || end > nwords || (row == 0 && start > 0)) {
        rice.nwords = 0;
        sink.fault = 1;
    }
    rice.held = lane < rice.nwords ? rice.words[lane] : 0;
    for (uint slice = 0; slice < nslices; slice++) {
        const uint n = min(ncols - slice * R4_SLICE_NCOLS, uint(R4_SLICE_NCOLS));
        const uint meta = source.meta[ulong(row) * nslices + slice];
        const uint nthere = r4_count_there(slice, lane, ncols);
        uint4 raw = r4_read_raw(source.raw + ulong(row) * ncols, slice, lane, nthere);
        uint4 ranks = r4_read_ranks(rice, meta, n, lane);
        uint biggest = max(max(ranks.x, ranks.y), max(ranks.z, ranks.w));
        if (biggest > 255 || (meta >> 2) << (meta & 3) > 255) sink.fault = 1;
        uint4 mine = r4_look_up(ranks, n, lane, table, exponents);
        r4_put(sink, slice, ncols, lane, uint(source.sizes[3]), mine, raw, nthere, codes_before);
    }
    if ((rice.bit + 31) / 32 != rice.nwords) sink.fault = 1;
}
