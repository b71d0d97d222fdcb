/* r4_fixed.metal - a row of format 1 (docs/FORMAT.md) to R4. Stands behind r4_rice.metal.
 *
 * The format stores no offsets, so two passes come before: r4_measure_fixed, whose sums tell where
 * each row's codes begin, and r4_count_fixed, whose sums tell where its escapes do.
 */

/* Bits of a valid meta's codes, 0..8. */
METAL_FUNC uint r4_fixed_width(uint meta, thread uint &fault) {
    uint b = meta & 15;
    bool is_valid = meta & 16 ? meta < 32 && b >= 1 && b <= 4 : meta <= 8;
    if (is_valid) return b;
    fault = 1;
    return 0;
}

METAL_FUNC bool r4_fixed_escapes(uint meta, uint b) {
    return (meta & 16) != 0 && b > 0;
}

/* Code i of a tile that begins at word `first`. */
template <class W> METAL_FUNC uint r4_fixed_code(W idx, uint nwords, ulong first, uint b, uint i) {
    ulong at = first + i * b / 32;
    uint shift = i * b % 32, low = b > 0 && at < nwords ? idx[at] : 0;
    uint high = shift + b > 32 && at + 1 < nwords ? idx[at + 1] : 0;
    uint both = shift ? low >> shift | high << (32 - shift) : low;
    return both & ((1u << b) - 1);
}

/* sizes: K, rows. widths[row]: the widths of a row's tiles in all, a quarter of its words. */
template <class M>
METAL_FUNC void r4_measure_fixed(M meta, const constant int *sizes, uint row, uint lane,
                                 device uint *widths, device uint *faults) {
    const uint nslices = r4_nslices(uint(sizes[0]));
    uint sum = 0, fault = 0;

    if (row >= uint(sizes[1])) return;
    for (uint slice = lane; slice < nslices; slice += 32)
        sum += r4_fixed_width(meta[ulong(row) * nslices + slice], fault);
    sum = simd_sum(sum);
    fault = r4_ballot(fault != 0) != 0;
    if (lane > 0) return;
    widths[row] = sum;
    faults[row] = fault;
}

/* The parts of format 1 and where a row's begin. sizes: K, rows, words of `idx`, bytes of `esc`,
 * base. starts [rows + 1]: sums of widths; escape_starts [rows + 1]: sums of r4_count_fixed. */
template <class B, class M, class W, class E, class S> struct r4_fixed_source {
    B raw;
    M meta;
    W idx;
    E esc;
    S starts, escape_starts;
    const constant int *sizes;
};

template <class B, class M, class W, class E, class S>
METAL_FUNC r4_fixed_source<B, M, W, E, S>
r4_fixed_parts(B raw, M meta, W idx, E esc, S starts, S escape_starts, const constant int *sizes) {
    r4_fixed_source<B, M, W, E, S> source;
    source.raw = raw;
    source.meta = meta;
    source.idx = idx;
    source.esc = esc;
    source.starts = starts;
    source.escape_starts = escape_starts;
    source.sizes = sizes;
    return source;
}

/* sizes: K, rows, words of `idx`. counts[row]: a row's escapes, those of the format. */
template <class M, class W, class S>
METAL_FUNC void r4_count_fixed(M meta, W idx, S starts, const constant int *sizes, uint row,
                               uint lane, device uint *counts, device uint *faults) {
    const uint nslices = r4_nslices(uint(sizes[0])), nrows = uint(sizes[1]);
    const uint nwords = uint(sizes[2]);
    uint n = 0, fault = 0;

    if (row >= nrows) return;
    ulong first = 4 * ulong(starts[row]);
    for (uint slice = 0; slice < nslices; slice++) {
        uint m = meta[ulong(row) * nslices + slice], b = r4_fixed_width(m, fault);
        for (uint s = 0; s < 4 && r4_fixed_escapes(m, b); s++) {
            uint code = r4_fixed_code(idx, nwords, first, b, lane + 32 * s);
            n += popcount(r4_ballot(code == (1u << b) - 1));
        }
        first += 4 * b;
    }
    if (lane > 0) return;
    if (4 * ulong(starts[nrows]) != nwords) fault = 1;
    counts[row] = n;
    faults[row] = fault;
}

template <bool FIRST, class Source>
METAL_FUNC void r4_decode_fixed(Source source, uint row, uint lane, threadgroup const uchar *table,
                                threadgroup uchar *exponents, thread r4_sink<FIRST> &sink) {
    const uint ncols = uint(source.sizes[0]), nrows = uint(source.sizes[1]);
    const uint nwords = uint(source.sizes[2]), nescapes = uint(source.sizes[3]);
    const uint nslices = r4_nslices(ncols);
    ulong first = 4 * ulong(source.starts[row]);
    uint next = source.escape_starts[row], codes_before = 0;

    if (source.escape_starts[nrows] != nescapes) sink.fault = 1;
    for (uint slice = 0; slice < nslices; slice++) {
        const uint meta = source.meta[ulong(row) * nslices + slice];
        const uint b = r4_fixed_width(meta, sink.fault);
        const uint escape = r4_fixed_escapes(meta, b) ? (1u << b) - 1 : 256;
        const uint nthere = r4_count_there(slice, lane, ncols);
        uint4 raw = r4_read_raw(source.raw + ulong(row) * ncols, slice, lane, nthere), mine;

        simdgroup_barrier(mem_flags::mem_threadgroup);
        R4_UNROLL
        for (uint s = 0; s < 4; s++) {
            uint code = r4_fixed_code(source.idx, nwords, first, b, lane + 32 * s);
            uint lanes = r4_ballot(code == escape);
            uint at = next + popcount(lanes & r4_lower_lanes(lane));
            uint stored = code == escape && at < nescapes ? source.esc[at] : 0;
            exponents[lane + 32 * s] = uchar(code == escape ? stored : table[code & 255]);
            next += popcount(lanes);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        first += 4 * b;
        R4_UNROLL
        for (uint q = 0; q < 4; q++)
            mine[q] = exponents[R4_LANE_NCOLS * lane + q];
        r4_put(sink, slice, ncols, lane, uint(source.sizes[4]), mine, raw, nthere, codes_before);
    }
}
