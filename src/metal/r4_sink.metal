/* r4_sink.metal - makes R4 from codes of either format or from BF16: what all sources share. Stands
 * behind r4_lanes.metal.
 *
 * Split: a simdgroup for a row, which a Rice stream asks for: only its planes tell where a tile
 * ends.
 *
 * Pass 1 writes slices, span masks, how many escapes each row has, and keeps the first R4_KEPT of a
 * row. r4_scan makes of the counts where each row's escapes begin. Pass 2 copies what was kept to
 * its place; rows that have more are decoded again. Inputs are never written; every word of an
 * output is, but for escapes behind the last.
 */

/* Where a row's weights go. FIRST pass: `row` and up to R4_KEPT escapes; else escapes alone. */
template <bool FIRST> struct r4_sink {
    device uint *row;
    device uint *escapes;
    uint nescapes, span_mask, fault;
};

METAL_FUNC uint r4_ballot(bool is) {
    return uint((simd_vote::vote_t)simd_ballot(is));
}

METAL_FUNC uint r4_lower_lanes(uint lane) {
    return (1u << lane) - 1;
}

/* Lane's part of a slice. */
METAL_FUNC void r4_put_share(device uint *row, uint slice, uint nslices, uint lane, uint raw,
                             uint codes, thread uint &codes_before) {
    const uint in_group = slice % R4_GROUP_NSLICES;
    if (slice < nslices / R4_GROUP_NSLICES * R4_GROUP_NSLICES) {
        device uint *group = row + (slice - in_group) * (R4_SLICE_NBYTES / 4);
        group[R4_GROUP_NSLICES * lane + in_group] = raw;
        if (in_group % 2)
            group[R4_GROUP_CODES_AT / 4 + 2 * lane + in_group / 2] =
                r4_join_codes(codes_before, codes);
        codes_before = codes;
    } else {
        device uint *single = row + slice * (R4_SLICE_NBYTES / 4);
        single[lane] = raw;
        ((device ushort *)(single + R4_SLICE_CODES_AT / 4))[lane] = ushort(codes);
    }
}

/* One slice of a row: exponents and raw bytes of a lane's four weights, of which `nthere` have a
 * column; behind them 0. */
template <bool FIRST>
METAL_FUNC void r4_put(thread r4_sink<FIRST> &sink, uint slice, uint ncols, uint lane, uint base,
                       uint4 exponents, uint4 raw, uint nthere, thread uint &codes_before) {
    uint codes[4], nbefore = sink.nescapes, nall = 0, mine = 0;

    R4_UNROLL
    for (uint q = 0; q < 4; q++) {
        uint code = exponents[q] - base;
        bool is_escape = q < nthere && code >= R4_CODE_ESCAPE;
        codes[q] = q >= nthere ? 0 : is_escape ? uint(R4_CODE_ESCAPE) : code;
        uint lanes = r4_ballot(is_escape);
        nbefore += popcount(lanes & r4_lower_lanes(lane));
        nall += popcount(lanes);
        mine |= uint(is_escape) << q;
    }
    R4_UNROLL
    for (uint q = 0; q < 4; q++) {
        if (!(mine >> q & 1)) continue;
        if (!FIRST || nbefore < R4_KEPT)
            sink.escapes[nbefore] =
                r4_escape(slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane + q, exponents[q]);
        nbefore++;
    }
    sink.nescapes += nall;
    if (!FIRST) return;
    if (nall)
        sink.span_mask |= 1u << (slice / (R4_SPAN_NCOLS / R4_SLICE_NCOLS) >> r4_mask_shift(ncols));
    r4_put_share(sink.row, slice, r4_nslices(ncols), lane, r4_pack_raw(raw.x, raw.y, raw.z, raw.w),
                 r4_pack_codes(codes[0], codes[1], codes[2], codes[3]), codes_before);
}

/* Of a lane's four columns of a slice, how many there are. */
METAL_FUNC uint r4_count_there(uint slice, uint lane, uint ncols) {
    uint column = slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane;
    return min(ncols - min(ncols, column), uint(R4_LANE_NCOLS));
}

/* Their raw bytes; 0 in the place of a missing one. */
template <class B> METAL_FUNC uint4 r4_read_raw(B raw_row, uint slice, uint lane, uint nthere) {
    uint4 raw(0);
    R4_UNROLL
    for (uint q = 0; q < 4; q++)
        if (q < nthere) raw[q] = raw_row[slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane + q];
    return raw;
}

/* ---- Passes ----------------------------------------------------------------------------------
 */

/* What pass 1 writes. kept [rows, R4_KEPT] */
struct r4_made {
    device uint *slices, *counts, *masks, *kept, *faults;
};

METAL_FUNC r4_sink<true> r4_begin_pass1(const thread r4_made &made, uint row, uint ncols) {
    r4_sink<true> sink;
    sink.row = made.slices + ulong(row) * (r4_nslices(ncols) * (R4_SLICE_NBYTES / 4));
    sink.escapes = made.kept + ulong(row) * R4_KEPT;
    sink.nescapes = sink.span_mask = sink.fault = 0;
    return sink;
}

METAL_FUNC void r4_end_pass1(const thread r4_made &made, uint row, uint lane,
                             const thread r4_sink<true> &sink) {
    uint fault = r4_ballot(sink.fault != 0) != 0;
    for (uint i = sink.nescapes + lane; i < R4_KEPT; i += 32)
        sink.escapes[i] = 0;
    if (lane > 0) return;
    made.counts[row] = sink.nescapes;
    made.masks[row] = sink.span_mask;
    made.faults[row] = fault;
}

/* What pass 2 is given and writes. rows [rows + 1, 2] */
template <class S, class M, class K> struct r4_places {
    S starts;
    M masks;
    K kept;
    device uint *rows, *escapes;
};

template <class S, class M, class K>
METAL_FUNC r4_places<S, M, K> r4_make_places(S starts, M masks, K kept, device uint *rows,
                                             device uint *escapes) {
    r4_places<S, M, K> places;
    places.starts = starts;
    places.masks = masks;
    places.kept = kept;
    places.rows = rows;
    places.escapes = escapes;
    return places;
}

/* Writes a row's header, and its escapes if they were kept; else returns true: they are to be
 * decoded again. */
template <class Places>
METAL_FUNC bool r4_begin_pass2(Places places, uint row, uint nrows, uint lane,
                               thread r4_sink<false> &sink) {
    const uint start = places.starts[row], n = places.starts[row + 1] - start;

    if (lane == 0) {
        places.rows[2 * row] = start;
        places.rows[2 * row + 1] = places.masks[row];
        if (row + 1 == nrows) {
            places.rows[2 * nrows] = start + n;
            places.rows[2 * nrows + 1] = 0;
        }
    }
    sink.row = nullptr;
    sink.escapes = places.escapes + start;
    sink.nescapes = sink.span_mask = sink.fault = 0;
    if (n > R4_KEPT) return true;
    if (lane < n) sink.escapes[lane] = places.kept[ulong(row) * R4_KEPT + lane];
    return false;
}
