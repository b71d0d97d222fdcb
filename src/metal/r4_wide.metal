/* r4_wide.metal - 2 to 15 rows of x in the order of MLX's gemv_wide (gemv.h of MLX 0.32.2), which
 * runs on M3 and later. Stands behind r4_sum.metal.
 *
 * L lanes share a row of W, 32 or 16. Of every 8 L chunks of four columns a lane takes chunks
 * lane + L i; their dot products are added to 0 one after the other, then to the lane's sum. Chunks
 * behind the last whole 8 L are added one by one. NV rows of x go over the same weights.
 *
 * Split: a threadgroup of L / 8 simdgroups for four rows of W and NV rows of x at a time.
 */

constant constexpr uint R4_NCHUNKS = 8;

/* The chunks of a lane from chunk `first` on: their pairs. Chunk c is the layout's lane c % 32 of
 * slice c / 32, so 8 L chunks are two groups, or one, and L = 16 takes two lanes of each slice. */
template <int L>
METAL_FUNC void r4_read_chunks(const device uint *row, uint first, uint lane, uint bases,
                               thread uint2 *pairs) {
    const device uint *group = row + first / 128 * R4_GROUP_NWORDS;
    R4_UNROLL
    for (int i = 0; i < 2; i++) {
        r4_share share = L == 32 ? r4_read_share(group + i * R4_GROUP_NWORDS, lane)
                                 : r4_read_share(group, lane + 16 * i);
        int step = L == 32 ? 1 : 2;
        thread uint2 *to = pairs + (L == 32 ? 4 * i : i);
        to[0] = r4_unpack(share.raw.x, share.codes.x, bases);
        to[step] = r4_unpack_second(share.raw.y, share.codes.x, bases);
        to[2 * step] = r4_unpack(share.raw.z, share.codes.y, bases);
        to[3 * step] = r4_unpack_second(share.raw.w, share.codes.y, bases);
    }
}

METAL_FUNC uint r4_escape_chunk(uint escape) {
    return escape >> 10;
}

/* Goes past the escapes of 8 L chunks. */
template <int L>
METAL_FUNC void r4_patch_chunks(uint first, uint lane, const device uint *escapes, uint bases,
                                thread r4_cursor &at, thread uint2 *pairs) {
    while (r4_escape_chunk(at.escape) < first + R4_NCHUNKS * L) {
        uint chunk = r4_escape_chunk(at.escape) - first;
        R4_UNROLL
        for (uint i = 0; i < R4_NCHUNKS; i++)
            if (chunk == i * L + lane) pairs[i] = r4_put_exponent(pairs[i], at.escape, bases);
        r4_next_escape(escapes, at);
    }
}

/* One chunk; the lane's chunks ascend. */
METAL_FUNC uint2 r4_read_chunk(const device uint *row, uint chunk, uint nslices,
                               const device uint *escapes, uint bases, thread r4_cursor &at) {
    uint2 share = r4_read_slice(row, chunk / 32, nslices, chunk % 32);
    uint2 pairs = r4_unpack(share.x, share.y, bases);
    while (r4_escape_chunk(at.escape) < chunk)
        r4_next_escape(escapes, at);
    while (r4_escape_chunk(at.escape) == chunk) {
        pairs = r4_put_exponent(pairs, at.escape, bases);
        r4_next_escape(escapes, at);
    }
    return pairs;
}

/* Sums of one row of W with rows m0 .. m0 + NV of x, in the first lane of each L. */
template <int NV, int L, class X>
METAL_FUNC void r4_sum_wide(const thread r4_part &part, uint mine, X x, uint ncols, uint nx,
                            uint m0, uint lane, thread float *sums) {
    const uint nslices = r4_nslices(ncols), nchunks = ncols / 4;
    const uint nmain = nchunks - nchunks % (L * R4_NCHUNKS), bases = r4_bases(part.base);
    const device uint *row = r4_row_at(part.slices, mine, nslices);
    r4_cursor at = r4_first_escape(part.rows, part.escapes, mine);

    R4_UNROLL
    for (int v = 0; v < NV; v++)
        sums[v] = 0.0f;
    for (uint first = 0; first < nmain; first += L * R4_NCHUNKS) {
        uint2 pairs[R4_NCHUNKS];
        r4_read_chunks<L>(row, first, lane, bases, pairs);
        r4_patch_chunks<L>(first, lane, part.escapes, bases, at, pairs);
        R4_UNROLL
        for (uint v = 0; v < NV; v++) {
            ulong from = ulong(min(m0 + v, nx - 1)) * ncols;
            float block = 0;
            R4_UNROLL
            for (uint i = 0; i < R4_NCHUNKS; i++)
                block += dot(r4_widen4(pairs[i]), r4_read_x(x + from, 4 * (first + i * L + lane)));
            sums[v] += block;
        }
    }
    for (uint chunk = nmain + lane; chunk < nchunks; chunk += L) {
        float4 w = r4_widen4(r4_read_chunk(row, chunk, nslices, part.escapes, bases, at));
        R4_UNROLL
        for (uint v = 0; v < NV; v++)
            sums[v] += dot(w, r4_read_x(x + ulong(min(m0 + v, nx - 1)) * ncols, 4 * chunk));
    }
    R4_UNROLL
    for (int v = 0; v < NV; v++)
        sums[v] = r4_add_lanes(sums[v], L);
}

/* sizes: K, rows of x. y [rows of x, taken]. The threadgroup takes NV rows of x from NV pass on,
 * and then those npasses further. */
template <int P, int NV, int L, bool BIAS, class X>
METAL_FUNC void r4_wide(const thread r4_part *parts, X x, const constant int *sizes, uint pass,
                        uint npasses, uint block, uint simd, uint lane) {
    const uint ncols = uint(sizes[0]), nx = uint(sizes[1]), k_lane = lane % L;
    r4_part part;
    float sums[NV];

    if (!r4_find_block<P>(parts, block, part)) return;
    const uint row = block * R4_NROWS + simd * (32 / L) + lane / L;
    const uint mine = part.row0 + min(row, part.taken - 1);
    for (uint m0 = pass * NV; m0 < nx; m0 += npasses * NV) {
        r4_sum_wide<NV, L>(part, mine, x, ncols, nx, m0, k_lane, sums);
        if (k_lane > 0 || row >= part.taken) continue;
        for (uint v = 0; v < NV && m0 + v < nx; v++) {
            float sum = BIAS ? 1.0f * sums[v] + 1.0f * float(part.bias[row]) : sums[v];
            part.y[ulong(m0 + v) * part.taken + row] = bfloat(sum);
        }
    }
}
