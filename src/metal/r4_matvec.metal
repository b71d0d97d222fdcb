/* r4_matvec.metal - y = W x, one row of x, in each of the three ways MLX's gemv splits K:
 *
 *   32 lanes, 128 columns a step        r4_matvec, for rows of one to three weights
 *   4 lanes, 16 columns a step          r4_matvec_short, where K <= 64
 *   8 simdgroups of 32 lanes, 1,024     r4_matvec_long, where K >= 16 rows
 *
 * and the first of them for items that meet rows of their experts, r4_gather (MLX's gather_mv,
 * which knows no other). Stands behind r4_sum.metal.
 *
 * Split: a simdgroup for four rows, or for 32 in the second way.
 */

template <bool BIAS>
METAL_FUNC void r4_store_rows(const thread r4_part &part, uint y_row, uint row, uint lane,
                              const thread float *sums) {
    if (lane > 0) return;
    R4_UNROLL
    for (uint r = 0; r < R4_NROWS; r++)
        if (row + r < part.taken)
            part.y[ulong(y_row) + row + r] = r4_end_row<BIAS>(part, row + r, sums[r]);
}

/* sizes: K. simd: number of the simdgroup in the grid. */
template <int P, bool BIAS, class X>
METAL_FUNC void r4_matvec(const thread r4_part *parts, X x, const constant int *sizes, uint simd,
                          uint lane) {
    r4_part part;
    float sums[R4_NROWS];
    uint block = simd;

    if (!r4_find_block<P>(parts, block, part)) return;
    r4_sum_rows(part, part.row0, block * R4_NROWS, x, uint(sizes[0]), lane, sums);
    r4_store_rows<BIAS>(part, 0, block * R4_NROWS, lane, sums);
}

/* ---- Experts ---------------------------------------------------------------------------------
 */

/* sizes: K, rows of x, experts, items that follow each other on a row of x (0: lhs names rows). y
 * [items, taken] of each part. An index out of range makes the item's rows NaN. */
template <int P, class X, class L, class R>
METAL_FUNC void r4_gather(const thread r4_part *parts, X x, L lhs, R rhs, const constant int *sizes,
                          uint item, uint simd, uint lane) {
    const uint ncols = uint(sizes[0]);
    const uint x_row = sizes[3] ? item / uint(sizes[3]) : uint(lhs[item]);
    const uint expert = uint(rhs[item]);
    const bool is_there = x_row < uint(sizes[1]) && expert < uint(sizes[2]);
    r4_part part;
    float sums[R4_NROWS];
    uint block = simd;

    if (!r4_find_block<P>(parts, block, part)) return;
    uint first = (is_there ? expert : 0) * part.block_nrows + part.row0;
    r4_sum_rows(part, first, block * R4_NROWS, x + ulong(is_there ? x_row : 0) * ncols, ncols, lane,
                sums);
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = is_there ? sums[r] : as_type<float>(0x7fc00000u);
    r4_store_rows<false>(part, item * part.taken, block * R4_NROWS, lane, sums);
}

/* ---- K <= 64 ----------------------------------------------------------------------------------
 * Lane p of 4 takes columns 4 p + 16 i, which the layout keeps in its lane p + 4 i of the one
 * slice.
 */

METAL_FUNC uint2 r4_read_quad(const thread r4_part &part, uint mine, uint from, uint bases) {
    const device uint *slice = r4_row_at(part.slices, mine, 1);
    uint2 pairs =
        r4_unpack(r4_read_single_raw(slice, from), r4_read_single_codes(slice, from), bases);
    for (uint i = part.rows[2 * mine]; i < part.rows[2 * mine + 2]; i++)
        if (r4_escape_lane(part.escapes[i]) == from)
            pairs = r4_put_exponent(pairs, part.escapes[i], bases);
    return pairs;
}

template <bool BIAS, class X>
METAL_FUNC void r4_matvec_short(const thread r4_part &part, X x, const constant int *sizes,
                                uint simd, uint lane) {
    const uint ncols = uint(sizes[0]), p = lane % 4, bases = r4_bases(part.base);
    const uint row = (simd * 8 + lane / 4) * R4_NROWS;
    float sums[R4_NROWS];

    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = 0.0f;
    for (uint i = 0; 16 * i < ncols; i++) {
        float4 four = r4_read_x_end(x, 16 * i + 4 * p, ncols);
        R4_UNROLL
        for (int r = 0; r < R4_NROWS; r++) {
            uint mine = part.row0 + min(row + r, part.taken - 1);
            sums[r] = r4_add4(sums[r], r4_read_quad(part, mine, p + 4 * i, bases), four);
        }
    }
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = r4_add_lanes(sums[r], 4);
    r4_store_rows<BIAS>(part, 0, row, p, sums);
}

/* ---- K >= 16 rows -----------------------------------------------------------------------------
 */

constant constexpr uint R4_LONG_NSIMDS = 8, R4_LONG_NSUMS = R4_LONG_NSIMDS * R4_NROWS;

/* This simdgroup's share of the sums of a block: slices simd, simd + 8, .. */
template <class X>
METAL_FUNC void r4_sum_long(const thread r4_part &part, uint row, X x, uint ncols, uint simd,
                            uint lane, thread float *sums) {
    const uint nslices = r4_nslices(ncols), bases = r4_bases(part.base);
    const uint nsteps = (ncols + 1023) / 1024;
    r4_block block;

    r4_begin_block(part, part.row0, row, nslices, block);
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = 0.0f;
    for (uint step = 0; step < nsteps; step++) {
        uint slice = step * R4_LONG_NSIMDS + simd;
        if (slice >= nslices) {
            R4_UNROLL
            for (int r = 0; r < R4_NROWS; r++)
                sums[r] += 0.0f; /* MLX's steps with 0 and 0 */
            break;
        }
        float4 four = r4_read_x_end(x, slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane, ncols);
        R4_UNROLL
        for (int r = 0; r < R4_NROWS; r++) {
            uint2 share = r4_read_slice(block.at[r], slice, nslices, lane);
            uint2 pairs = r4_unpack(share.x, share.y, bases);
            r4_seek_slice(slice, part.escapes, block.escapes[r]);
            pairs = r4_patch(pairs, slice, lane, part.escapes, bases, block.escapes[r]);
            sums[r] = r4_add4(sums[r], pairs, four);
        }
    }
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = r4_add_lanes(sums[r], 32);
}

/* A threadgroup of eight simdgroups for four rows; of_simds [R4_LONG_NSUMS]. */
template <bool BIAS, class X>
METAL_FUNC void r4_matvec_long(const thread r4_part &part, X x, const constant int *sizes,
                               uint block, uint simd, uint lane, threadgroup float *of_simds) {
    float sums[R4_NROWS];

    r4_sum_long(part, block * R4_NROWS, x, uint(sizes[0]), simd, lane, sums);
    if (lane == 0) R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        of_simds[simd * R4_NROWS + r] = sums[r];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd > 0 || lane > 0) return;
    R4_UNROLL
    for (int s = 1; s < R4_LONG_NSIMDS; s++)
        R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] += of_simds[s * R4_NROWS + r];
    r4_store_rows<BIAS>(part, 0, block * R4_NROWS, 0, sums);
}
