/* r4_rebuild.metal - R4 back to BF16: all rows of a weight, some of every block, or those that ids
 * name. Stands behind r4_share.metal.
 *
 * Split: a simdgroup for up to four groups of a row, whose loads are in flight together.
 */

constant constexpr uint R4_AT_ONCE = 4;

METAL_FUNC void r4_put_slice(device bfloat *out, uint slice, uint lane, uint ncols, uint2 pairs) {
    const uint column = slice * R4_SLICE_NCOLS + R4_LANE_NCOLS * lane;
    const uint words[2] = {pairs.x, pairs.y};
    if (column + R4_LANE_NCOLS <= ncols && ncols % R4_LANE_NCOLS == 0) {
        *(device uint2 *)(out + column) = pairs;
        return;
    }
    R4_UNROLL
    for (uint j = 0; j < R4_LANE_NCOLS; j++)
        if (column + j < ncols)
            out[column + j] = as_type<bfloat>(ushort(words[j / 2] >> 16 * (j & 1)));
}

/* Groups first .. first + 4 of a row; out: the row. */
METAL_FUNC void r4_rebuild_span(const thread r4_part &part, uint mine, uint ncols, uint first,
                                uint lane, device bfloat *out) {
    const uint nslices = r4_nslices(ncols), ngroups = nslices / R4_GROUP_NSLICES;
    const uint bases = r4_bases(part.base);
    const device uint *row = r4_row_at(part.slices, mine, nslices);
    r4_cursor at = r4_first_escape(part.rows, part.escapes, mine);
    r4_share shares[R4_AT_ONCE];

    R4_UNROLL
    for (uint i = 0; i < R4_AT_ONCE; i++)
        if (first + i < ngroups)
            shares[i] = r4_read_share(row + (first + i) * R4_GROUP_NWORDS, lane);
    r4_seek_slice(first * R4_GROUP_NSLICES, part.escapes, at);
    R4_UNROLL
    for (uint i = 0; i < R4_AT_ONCE; i++) {
        const uint slice = (first + i) * R4_GROUP_NSLICES;
        uint2 pairs[R4_GROUP_NSLICES];
        if (first + i < ngroups) {
            pairs[0] = r4_unpack(shares[i].raw.x, shares[i].codes.x, bases);
            pairs[1] = r4_unpack_second(shares[i].raw.y, shares[i].codes.x, bases);
            pairs[2] = r4_unpack(shares[i].raw.z, shares[i].codes.y, bases);
            pairs[3] = r4_unpack_second(shares[i].raw.w, shares[i].codes.y, bases);
        }
        for (uint s = 0; s < R4_GROUP_NSLICES && slice + s < nslices; s++) {
            if (first + i >= ngroups) {
                uint2 share = r4_read_slice(row, slice + s, nslices, lane);
                pairs[s] = r4_unpack(share.x, share.y, bases);
            }
            pairs[s] = r4_patch(pairs[s], slice + s, lane, part.escapes, bases, at);
            r4_put_slice(out, slice + s, lane, ncols, pairs[s]);
        }
    }
}

/* out[b * taken + i] = row b * block_nrows + row0 + i of W, i < taken. sizes: K, rows of out. */
METAL_FUNC void r4_rebuild(const thread r4_part &part, const constant int *sizes, uint span,
                           uint row, uint lane) {
    const uint ncols = uint(sizes[0]);
    if (row >= uint(sizes[1])) return;
    const uint mine = row / part.taken * part.block_nrows + part.row0 + row % part.taken;
    r4_rebuild_span(part, mine, ncols, span * R4_AT_ONCE, lane, part.y + ulong(row) * ncols);
}

/* out[i] = row ids[i] of W, from the end if negative; NaN where there is none. sizes: K, ids. */
template <class I>
METAL_FUNC void r4_rows(const thread r4_part &part, I ids, const constant int *sizes, uint span,
                        uint row, uint lane) {
    const uint ncols = uint(sizes[0]);
    if (row >= uint(sizes[1])) return;
    long id = long(ids[row]);
    device bfloat *out = part.y + ulong(row) * ncols;
    if (id < 0) id += long(part.taken);
    if (id >= 0 && id < long(part.taken)) {
        r4_rebuild_span(part, part.row0 + uint(id), ncols, span * R4_AT_ONCE, lane, out);
        return;
    }
    const uint column0 = span * R4_AT_ONCE * R4_GROUP_NCOLS;
    for (uint c = column0 + lane; c < min(ncols, column0 + R4_AT_ONCE * R4_GROUP_NCOLS); c += 32)
        out[c] = as_type<bfloat>(ushort(0x7fc0));
}
