/* r4_sum.metal - steps of a lane's sum in the order of MLX's gemv (gemv.h of MLX 0.32.2), and what
 * ends a row. Stands behind r4_share.metal.
 *
 * MLX gives a lane four neighbouring columns of every 128 and adds them one after the other. Where
 * a row ends within these 128, it takes 0 for weight and x: the step is made and turns a sum of -0
 * into +0. So x is 0 there; what R4 has in the place of a weight is positive and finite.
 */

/* Four columns of x. */
template <class X> METAL_FUNC float4 r4_read_x(X x, uint column) {
    return float4(float(x[column]), float(x[column + 1]), float(x[column + 2]),
                  float(x[column + 3]));
}

/* The same, 0 behind the last column. */
template <class X> METAL_FUNC float4 r4_read_x_end(X x, uint column, uint ncols) {
    float4 four(0.0f);
    if (column + 4 <= ncols) return r4_read_x(x, column);
    R4_UNROLL
    for (uint j = 0; j < 3; j++)
        if (column + j < ncols) four[j] = float(x[column + j]);
    return four;
}

METAL_FUNC float r4_add4(float sum, uint2 pairs, float4 x) {
    float4 w = r4_widen4(pairs);
    sum += w.x * x.x;
    sum += w.y * x.y;
    sum += w.z * x.z;
    sum += w.w * x.w;
    return sum;
}

/* The sum of `nlanes` lanes from this one on, in the first of them. */
METAL_FUNC float r4_add_lanes(float sum, ushort nlanes) {
    for (ushort apart = nlanes / 2; apart >= 1; apart >>= 1)
        sum += simd_shuffle_down(sum, apart);
    return sum;
}

/* MLX's gemv rounds before it adds the bias in BF16. */
template <bool BIAS> METAL_FUNC bfloat r4_end_row(const thread r4_part &part, uint row, float sum) {
    if (BIAS) return bfloat(1.0f) * bfloat(sum) + bfloat(1.0f) * part.bias[row];
    return bfloat(sum);
}

/* ---- Blocks of four rows ---------------------------------------------------------------------
 * What a simdgroup multiplies side by side, as in MLX: each row's loads are in flight together and
 * x is read once for all.
 */

constant constexpr uint R4_NROWS = 4;

METAL_FUNC uint r4_nblocks(uint nrows) {
    return (nrows + R4_NROWS - 1) / R4_NROWS;
}

/* Of the blocks of all parts, one after the other, finds the part that `block` is in, and counts
 * the block from the part's first. False behind the last. */
template <int P>
METAL_FUNC bool r4_find_block(const thread r4_part *parts, thread uint &block,
                              thread r4_part &part) {
    bool is_found = false;
    R4_UNROLL
    for (int i = 0; i < P; i++) {
        uint n = r4_nblocks(parts[i].taken);
        if (is_found) continue;
        if (block < n) {
            part = parts[i];
            is_found = true;
        } else {
            block -= n;
        }
    }
    return is_found;
}

/* The rows of a block; behind the last row the last again, whose sum is then not stored. first: row
 * of the weight that is row 0 of the part. */
struct r4_block {
    const device uint *at[R4_NROWS];
    r4_cursor escapes[R4_NROWS];
};

METAL_FUNC void r4_begin_block(const thread r4_part &part, uint first, uint row, uint nslices,
                               thread r4_block &block) {
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++) {
        uint mine = first + min(row + r, part.taken - 1);
        block.at[r] = r4_row_at(part.slices, mine, nslices);
        block.escapes[r] = r4_first_escape(part.rows, part.escapes, mine);
    }
}

/* ---- Four rows, 32 lanes side by side ---------------------------------------------------------
 */

/* Group g of all rows: their loads first. END: the row may end in it. */
template <bool END, class X>
METAL_FUNC void r4_add_group(const thread r4_part &part, uint bases, X x, uint ncols, uint g,
                             uint lane, thread r4_block &block, thread float *sums) {
    r4_share shares[R4_NROWS];
    float4 xs[R4_GROUP_NSLICES];

    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        shares[r] = r4_read_share(block.at[r] + g * R4_GROUP_NWORDS, lane);
    R4_UNROLL
    for (uint s = 0; s < R4_GROUP_NSLICES; s++) {
        uint column = g * R4_GROUP_NCOLS + s * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane;
        xs[s] = END ? r4_read_x_end(x, column, ncols) : r4_read_x(x, column);
    }
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++) {
        uint2 p0 = r4_unpack(shares[r].raw.x, shares[r].codes.x, bases);
        uint2 p1 = r4_unpack_second(shares[r].raw.y, shares[r].codes.x, bases);
        uint2 p2 = r4_unpack(shares[r].raw.z, shares[r].codes.y, bases);
        uint2 p3 = r4_unpack_second(shares[r].raw.w, shares[r].codes.y, bases);
        if (r4_escape_group(block.escapes[r].escape) == g) {
            uint s = g * R4_GROUP_NSLICES;
            p0 = r4_patch(p0, s, lane, part.escapes, bases, block.escapes[r]);
            p1 = r4_patch(p1, s + 1, lane, part.escapes, bases, block.escapes[r]);
            p2 = r4_patch(p2, s + 2, lane, part.escapes, bases, block.escapes[r]);
            p3 = r4_patch(p3, s + 3, lane, part.escapes, bases, block.escapes[r]);
        }
        sums[r] = r4_add4(sums[r], p0, xs[0]);
        sums[r] = r4_add4(sums[r], p1, xs[1]);
        sums[r] = r4_add4(sums[r], p2, xs[2]);
        sums[r] = r4_add4(sums[r], p3, xs[3]);
    }
}

/* A slice of all rows that lies singly. */
template <class X>
METAL_FUNC void r4_add_single(const thread r4_part &part, uint bases, X x, uint ncols, uint slice,
                              uint lane, thread r4_block &block, thread float *sums) {
    float4 four = r4_read_x_end(x, slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane, ncols);

    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++) {
        const device uint *at = block.at[r] + slice * (R4_SLICE_NBYTES / 4);
        uint2 pairs =
            r4_unpack(r4_read_single_raw(at, lane), r4_read_single_codes(at, lane), bases);
        pairs = r4_patch(pairs, slice, lane, part.escapes, bases, block.escapes[r]);
        sums[r] = r4_add4(sums[r], pairs, four);
    }
}

/* Sums of rows row .. row + 4 of a part with x; lane 0 has them. */
template <class X>
METAL_FUNC void r4_sum_rows(const thread r4_part &part, uint first, uint row, X x, uint ncols,
                            uint lane, thread float *sums) {
    const uint nslices = r4_nslices(ncols), ngroups = nslices / R4_GROUP_NSLICES;
    const uint nwhole = ncols / R4_GROUP_NCOLS; /* the last group may lack columns */
    const uint bases = r4_bases(part.base);
    r4_block block;

    r4_begin_block(part, first, row, nslices, block);
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = 0.0f;
    for (uint g = 0; g < nwhole; g++)
        r4_add_group<false>(part, bases, x, ncols, g, lane, block, sums);
    if (nwhole < ngroups) r4_add_group<true>(part, bases, x, ncols, nwhole, lane, block, sums);
    for (uint slice = ngroups * R4_GROUP_NSLICES; slice < nslices; slice++)
        r4_add_single(part, bases, x, ncols, slice, lane, block, sums);
    R4_UNROLL
    for (int r = 0; r < R4_NROWS; r++)
        sums[r] = r4_add_lanes(sums[r], 32);
}
