/* r4_share.metal - from a lane's share of R4 to weights. docs/R4.md draws the layout, which is that
 * of src/cuda with four columns a lane at once, whatever K is.
 *
 * Stands behind r4_lanes.metal in a kernel's text. Nothing here depends on which lane of its
 * simdgroup a thread is: `lane` is the layout's.
 */

constant constexpr uint R4_GROUP_NWORDS = R4_GROUP_NBYTES / 4;

/* One weight of a launch, or rows of every block of one. `facts` is what a launch is told of it:
 * row0, taken, block_nrows, base. Rows row0 .. row0 + taken of each block of block_nrows count. */
struct r4_part {
    const device uint *slices;
    const device uint *rows; /* two words a row: where its escapes begin, which spans have any */
    const device uint *escapes;
    uint row0, taken, block_nrows, base;
    const device bfloat *bias;
    device bfloat *y;
};

METAL_FUNC r4_part r4_make_part(const device uint *slices, const device uint *rows,
                                const device uint *escapes, const constant int *facts,
                                const device bfloat *bias, device bfloat *y) {
    r4_part part;
    part.slices = slices;
    part.rows = rows;
    part.escapes = escapes;
    part.row0 = uint(facts[0]);
    part.taken = uint(facts[1]);
    part.block_nrows = uint(facts[2]);
    part.base = uint(facts[3]);
    part.bias = bias;
    part.y = y;
    return part;
}

METAL_FUNC const device uint *r4_row_at(const device uint *slices, uint row, uint nslices) {
    return slices + ulong(row) * (nslices * (R4_SLICE_NBYTES / 4));
}

/* base at both exponents of a pair. */
METAL_FUNC uint r4_bases(uint base) {
    return base << 7 | base << 23;
}

/* What MLX's kernels do with a BF16 weight. */
METAL_FUNC float r4_widen(uint bf16) {
    return float(as_type<bfloat>(ushort(bf16)));
}

/* ---- Shares ----------------------------------------------------------------------------------
 */

/* A lane's 16 weights of a group: words of raw bytes, slice after slice, and of codes. */
struct r4_share {
    uint4 raw;
    uint2 codes;
};

METAL_FUNC r4_share r4_read_share(const device uint *group, uint lane) {
    r4_share share;
    share.raw = *(const device uint4 *)(group + 4 * lane);
    share.codes = *(const device uint2 *)(group + R4_GROUP_CODES_AT / 4 + 2 * lane);
    return share;
}

/* A lane's four weights of a slice that lies singly. */
METAL_FUNC uint r4_read_single_raw(const device uint *slice, uint lane) {
    return slice[lane];
}

METAL_FUNC uint r4_read_single_codes(const device uint *slice, uint lane) {
    uint both = slice[R4_SLICE_CODES_AT / 4 + lane / 2];
    return r4_join_codes(both >> 16 * (lane & 1) & 0xffff, 0);
}

/* A lane's eight weights of two slices, the first of which is even. */
struct r4_two {
    uint raw0, raw1, codes;
};

/* `slice` is even and < nslices. */
METAL_FUNC r4_two r4_read_two(const device uint *row, uint slice, uint nslices, uint lane) {
    r4_two two;
    const device uint *at = row + slice * (R4_SLICE_NBYTES / 4);
    if ((slice | (R4_GROUP_NSLICES - 1)) < nslices) {
        uint second = slice / 2 & 1;
        const device uint *group = at - second * (2 * R4_SLICE_NBYTES / 4);
        uint2 raw = *(const device uint2 *)(group + 4 * lane + 2 * second);
        two.raw0 = raw.x;
        two.raw1 = raw.y;
        two.codes = group[R4_GROUP_CODES_AT / 4 + 2 * lane + second];
        return two;
    }
    two.raw0 = r4_read_single_raw(at, lane);
    two.codes = r4_read_single_codes(at, lane);
    two.raw1 = 0;
    if (slice + 1 < nslices) {
        at += R4_SLICE_NBYTES / 4;
        two.raw1 = r4_read_single_raw(at, lane);
        uint codes = r4_read_single_codes(at, lane);
        two.codes |= codes << 8 | codes >> 24;
    }
    return two;
}

/* One slice of a lane: raw bytes, and its codes at the first pair's place. */
METAL_FUNC uint2 r4_read_slice(const device uint *row, uint slice, uint nslices, uint lane) {
    r4_two two = r4_read_two(row, slice & ~1u, nslices, lane);
    if (slice & 1) return uint2(two.raw1, two.codes >> 8 | two.codes << 24);
    return uint2(two.raw0, two.codes);
}

/* ---- Weights ---------------------------------------------------------------------------------
 */

/* Four weights of a slice as two pairs of BF16, a pair's first weight in the low two. codes: as
 * r4_join_codes puts them. */
METAL_FUNC uint2 r4_unpack(uint raw, uint codes, uint bases) {
    const uint in_place = 0x07800780u;
    uint swapped = (raw << 8 & 0x80008000u) | (raw >> 8 & 0x007f007fu);
    return uint2(((raw & 0x807f807fu) | (codes & in_place)) + bases,
                 (swapped | (codes >> 4 & in_place)) + bases);
}

/* The same for the second slice of a word of codes. */
METAL_FUNC uint2 r4_unpack_second(uint raw, uint codes, uint bases) {
    return r4_unpack(raw, codes >> 8 | codes << 24, bases);
}

METAL_FUNC float4 r4_widen4(uint2 pairs) {
    return float4(r4_widen(pairs.x), r4_widen(pairs.x >> 16), r4_widen(pairs.y),
                  r4_widen(pairs.y >> 16));
}

/* ---- Escapes ---------------------------------------------------------------------------------
 * Those of a row ascend by position, so whoever goes over the row keeps the next one at hand.
 */

struct r4_cursor {
    uint next, end, escape; /* `escape` is number `next`; behind the last, all ones */
};

METAL_FUNC r4_cursor r4_first_escape(const device uint *rows, const device uint *escapes,
                                     uint row) {
    r4_cursor at;
    at.next = rows[2 * row];
    at.end = rows[2 * row + 2];
    at.escape = at.next < at.end ? escapes[at.next] : ~0u;
    return at;
}

METAL_FUNC void r4_next_escape(const device uint *escapes, thread r4_cursor &at) {
    at.next++;
    at.escape = at.next < at.end ? escapes[at.next] : ~0u;
}

METAL_FUNC uint r4_escape_slice(uint escape) {
    return escape >> 15;
}

METAL_FUNC uint r4_escape_lane(uint escape) {
    return escape >> 10 & 31;
}

/* Gives one weight of a slice its exponent: code 15 has made it base + 15. */
METAL_FUNC uint2 r4_put_exponent(uint2 pairs, uint escape, uint bases) {
    uint change = (escape & 0xff) << 7 ^ ((bases & 0xffff) + (R4_CODE_ESCAPE << 7));
    change <<= 16 * (escape >> 8 & 1);
    return escape >> 9 & 1 ? uint2(pairs.x, pairs.y ^ change) : uint2(pairs.x ^ change, pairs.y);
}

/* Goes past the escapes of a slice, putting in those of this lane. */
METAL_FUNC uint2 r4_patch(uint2 pairs, uint slice, uint lane, const device uint *escapes,
                          uint bases, thread r4_cursor &at) {
    while (r4_escape_slice(at.escape) == slice) {
        if (r4_escape_lane(at.escape) == lane) pairs = r4_put_exponent(pairs, at.escape, bases);
        r4_next_escape(escapes, at);
    }
    return pairs;
}

/* Goes to the first escape of a slice or behind it. */
METAL_FUNC void r4_seek_slice(uint slice, const device uint *escapes, thread r4_cursor &at) {
    while (at.next < at.end && r4_escape_slice(at.escape) < slice)
        r4_next_escape(escapes, at);
}
